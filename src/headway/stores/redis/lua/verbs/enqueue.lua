-- Enqueue: create jobs that do not exist yet.
-- needs: base.time, base.write, engine.gate_cache, engine.horizon, engine.insert

local Enqueue = {}

-- Return whether a job may be refused after others were written: only the follow-up of a cascade
-- that ends immediately.
local function may_be_refused_late(request)
  for _, policy in ipairs(request.policies) do
    if policy.cascade then
      return true
    end
  end
  return false
end

-- Return the jobs of a request by the names of NewJob; jobs of one shape share its gates and
-- policy.
local function jobs_of(request)
  local jobs, no_gates = {}, {}
  for place, one in ipairs(request.jobs) do
    local shape = request.shapes[one[2]]
    jobs[place] = {
      id = one[1],
      kind = shape[1],
      lane = shape[2],
      tenant = shape[3],
      gates = request.gates[shape[4]] or no_gates,
      policy = request.policies[shape[5]],
      args = one[3],
      priority = one[4],
      due_at = one[5],
      subject = one[6],
      stage = one[7],
      key = one[8],
      expires_at = one[9],
      candidates = one[10],
      entry = one[11],
      fired_at = one[12],
    }
  end
  return jobs
end

-- Create the jobs that do not exist. Return a letter for each: c created, e exists, k another job
-- has its key; and for each k the other's id: {place from 1, id}.
function Enqueue.run(request)
  if may_be_refused_late(request) then
    Write.begin()
  end
  Write.guarded()
  Horizon.begin(request)
  local cache, jobs = GateCache.new(), jobs_of(request)
  local replies = Insert.insert_new(cache, jobs, true)
  GateCache.save(cache)
  Time.keep()
  local letters, others = {}, {}
  for place, reply in ipairs(replies) do
    if reply.created then
      letters[place] = 'c'
    elseif reply.id == jobs[place].id then
      letters[place] = 'e'
    else
      letters[place] = 'k'
      others[#others + 1] = { place, reply.id }
    end
  end
  return { created = table.concat(letters), ids = others }
end
