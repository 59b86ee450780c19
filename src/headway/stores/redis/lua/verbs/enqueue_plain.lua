-- Enqueue of plain jobs, like `enqueue` with minimal work.
--
-- Most enqueues are of one job without gates, key, subject, stage, expiry, candidates or entry,
-- whose end needs only a changed state. The time of such a call is spent on creating functions, so
-- this script has few. What it cannot handle, it leaves to `enqueue`, with nothing written.
-- quick: quick.enqueue
-- needs: base.codec, base.keys, base.time, base.write, base.run, tables.counts, tables.interned
-- needs: tables.job_arrivals, tables.packing

local EnqueuePlain = {}

-- Return whether all jobs are new, and none is repeated.
local function are_new(jobs)
  local ids, seen = {}, {}
  for place = 1, #jobs do
    local id = jobs[place][1]
    if seen[id] then
      return false
    end
    seen[id] = true
    ids[place] = id
  end
  for _, found in ipairs(Write.read(Keys.jobs, ids)) do
    if found then
      return false
    end
  end
  return true
end

-- Return whether the lanes exist, and have no maximum backlog.
local function are_unlimited(shapes)
  local lanes = {}
  for place, shape in ipairs(shapes) do
    lanes[place] = shape[2]
  end
  for _, kept in ipairs(Write.read(Keys.lanes, lanes)) do
    local row = kept and cmsgpack.unpack(kept)
    local current = row and (row.override or row.spec)
    if not row or (current and current.max_backlog) then
      return false
    end
  end
  return true
end

-- Return flow, policy and encoded lane name of each shape, with counts of its jobs by state.
local function prepare(request)
  local shapes = {}
  for place, shape in ipairs(request.shapes) do
    local flow = { lane = shape[2], tenant = shape[3], kind = shape[1], shared = {} }
    shapes[place] = {
      lane = shape[2],
      flow = Interned.flow_number(flow),
      policy = Interned.policy_number(request.policies[shape[5]]),
      name = Codec.name(shape[2]),
      waiting = 0,
      scheduled = 0,
    }
  end
  return shapes
end

local function write(rows, waiting, scheduled, arrived)
  Write.hset(Keys.jobs, rows)
  Write.zadd(Keys.waiting, waiting)
  Write.zadd(Keys.scheduled, scheduled)
  JobArrivals.add(arrived)
end

local function make(jobs, shapes)
  local now, count = Time.now, #jobs
  local first = Write.hincrby(Keys.facts, 'seq', count) - count
  local rows, waiting, scheduled, arrived = {}, {}, {}, {}
  for place = 1, count do
    local job, seq = jobs[place], first + place
    local id, shape, due_at = job[1], shapes[job[2]], job[5] or now
    local state = due_at > now and 'scheduled' or 'waiting'
    shape[state] = shape[state] + 1
    local row = Packing.plain_row(state, shape, job[4], due_at, seq, now, job[3])
    rows[2 * place - 1], rows[2 * place] = id, row
    arrived[place] = { seq = seq, id = id }
    if state == 'waiting' then
      waiting[#waiting + 1], waiting[#waiting + 2] = 0, string.sub(row, 3, 22) .. id
    else
      local due = shape.name .. string.sub(row, 11, 22) .. id
      scheduled[#scheduled + 1], scheduled[#scheduled + 2] = 0, due
      Run.wake(shape.lane, due_at)
    end
  end
  write(rows, waiting, scheduled, arrived)
end

local function count_all(shapes, total)
  local flowing = {}
  for _, shape in ipairs(shapes) do
    if shape.waiting > 0 then
      flowing[#flowing + 1], flowing[#flowing + 2] = 0, shape.name .. Codec.n4(shape.flow)
      Counts.move(shape.lane, nil, 'waiting', shape.waiting)
      Run.wake(shape.lane)
    end
    if shape.scheduled > 0 then
      Counts.move(shape.lane, nil, 'scheduled', shape.scheduled)
    end
  end
  Write.zadd(Keys.flowing, flowing)
  Counts.happened('enqueued', total)
end

-- Create the jobs of an `enqueue` request that are all plain. Return whether it did; if not,
-- nothing was written.
function EnqueuePlain.run(request)
  local jobs = request.jobs
  if not are_new(jobs) or not are_unlimited(request.shapes) then
    return false
  end
  Write.guarded()
  local shapes = prepare(request)
  make(jobs, shapes)
  count_all(shapes, #jobs)
  Time.keep()
  return true
end
