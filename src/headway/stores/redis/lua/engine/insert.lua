-- Insertion of new jobs, for enqueue and for verbs that create jobs in their own step.
--
-- Everything is decided before anything is written: which jobs exist, which job has which key, and
-- whether the gates are declared and the lanes have room.
-- needs: base.codec, base.run, base.time, tables.counts, tables.lanes, tables.jobs, tables.dedupe
-- needs: rules.insert_limits, rules.state, engine.flow_of, engine.new_jobs, engine.horizon

local Insert = {}

-- Refuse with BacklogFull if a lane would exceed its maximum backlog.
--   counts: {lane, state, n} of the new jobs.
function Insert.check_backlog(lanes, counts)
  local rows, limited, names = Lanes.load(lanes), {}, {}
  for _, lane in ipairs(lanes) do
    local most = rows[lane] and Lanes.current(rows[lane]).max_backlog
    if most ~= nil then
      limited[lane] = most
      names[#names + 1] = lane
    end
  end
  if #names == 0 then
    return
  end
  local held = Counts.of_lanes(names)
  for _, lane in ipairs(names) do
    local new, old = 0, 0
    for _, one in ipairs(counts) do
      new = new + (one.lane == lane and one.n or 0)
    end
    for state, n in pairs(held[lane] or {}) do
      old = old + (State.FINAL[state] and 0 or n)
    end
    if old + new > limited[lane] then
      local message = 'lane %s holds %.0f jobs of at most %.0f; %.0f more are refused'
      local text = string.format(message, Run.quoted(lane), old, limited[lane], new)
      Run.refuse('BacklogFull', text, "try again later, or raise the lane's max_backlog")
    end
  end
end

local NO_GATES = {}

local function new_batch(cache)
  return {
    cache = cache,
    -- What jobs with the same lane, tenant, kind, gates and policy share, by these.
    shapes = {},
    numbers = {},
    count_of_numbers = 0,
    -- Jobs to be created, in order, each with its shape.
    jobs = {},
    keys = {},
    key_rows = {},
    follow = {},
    -- Jobs by (lane, state), in order of first use.
    counts = {},
    count_at = {},
  }
end

local function body_of(job)
  return NewJobs.body_hash(job.kind, job.lane, job.tenant, job.subject, job.args)
end

local function refuse_other_body(job, body)
  if body_of(job) ~= body then
    local message = 'a job ' .. job.id .. ' already exists with a different body'
    Run.refuse('IdConflict', message, 'use a new id, or over HTTP a new Idempotency-Key, for a new job')
  end
end

local function body_of_row(row)
  local body = row.body
  if body == nil or body == '' then
    body = body_of(row)
  end
  return body
end

local function check_same(job)
  refuse_other_body(job, body_of_row(Jobs.load({ job.id })[job.id]))
end

-- Give a job the first free id of its series. Callers can choose ids, so another job may have the
-- derived id, even with the same body; the follow-up is inserted nevertheless. A repeated step does
-- not get here, because its own guard detects the repetition.
local function find_id(job)
  local series = { job.id }
  while true do
    series = NewJobs.ids_after(series[#series], math.min(2 * #series, InsertLimits.MOST_IDS_READ))
    local taken = Jobs.known(series)
    for _, id in ipairs(series) do
      if not taken[id] then
        job.id = id
        return
      end
    end
  end
end

-- Join texts without NUL to one.
local function joined(...)
  return table.concat({ ... }, '\0')
end

-- Return a number for a table; the same table gets the same number.
local function number_of(batch, thing)
  local number = batch.numbers[thing]
  if number == nil then
    number = batch.count_of_numbers + 1
    batch.count_of_numbers = number
    batch.numbers[thing] = number
  end
  return number
end

-- Return what the job shares with others of the batch; its gates are checked once.
local function shape_of(batch, job)
  local gates = job.gates or NO_GATES
  local last = batch.last_shape
  if
    last
    and last.policy == job.policy
    and last.gates == gates
    and last.kind == job.kind
    and last.lane == job.lane
    and last.tenant == job.tenant
  then
    return last
  end
  local numbers = number_of(batch, gates) .. ' ' .. number_of(batch, job.policy)
  local place = joined(job.lane, job.tenant, job.kind, numbers)
  local shape = batch.shapes[place]
  if shape == nil then
    FlowOf.check_declared(batch.cache, job.kind, gates)
    shape = {
      lane = job.lane,
      tenant = job.tenant,
      kind = job.kind,
      gates = gates,
      policy = job.policy,
    }
    batch.shapes[place] = shape
    batch.shapes[#batch.shapes + 1] = shape
  end
  batch.last_shape = shape
  return shape
end

-- Return the current rows of the jobs' keys, by tenant and key.
local function standing_keys(jobs)
  local asked, standing = {}, {}
  for _, job in ipairs(jobs) do
    if job.key ~= nil then
      asked[#asked + 1] = { job.tenant, job.key }
    end
  end
  for place, row in ipairs(Dedupe.load(asked)) do
    if row and (row.until_at == nil or row.until_at > Time.now) then
      standing[joined(asked[place][1], asked[place][2])] = row
    end
  end
  return standing
end

-- Return the job that has the key of this one; nil if this one gets the key.
local function holder_of(batch, job, standing)
  if job.key == nil then
    return nil
  end
  local place = joined(job.tenant, job.key)
  local body, held = body_of(job), standing[place]
  if not held then
    local row = { tenant = job.tenant, key = job.key, job = job.id, body = body }
    standing[place], batch.keys[place] = row, row
    batch.key_rows[#batch.key_rows + 1] = row
    return nil
  end
  if held.body ~= body then
    local message = 'the key ' .. Run.quoted(job.key) .. ' names job ' .. held.job
    local hint = 'kind, lane, subject and arguments must be the same under one key'
    Run.refuse('KeyConflict', message .. ', which has a different body', hint)
  end
  return held.job
end

-- Decide which jobs are created. Return a reply for each: {id, created}.
local function sort_out(batch, jobs, derived)
  local known, standing = Jobs.known(Codec.fields(jobs, 'id')), standing_keys(jobs)
  local seen, replies = {}, {}
  for place, job in ipairs(jobs) do
    if derived and known[job.id] then
      find_id(job)
    end
    local id, holder = job.id, nil
    if known[id] then
      check_same(job)
    elseif seen[id] then
      refuse_other_body(job, body_of(seen[id]))
    else
      holder = holder_of(batch, job, standing)
      if holder == nil then
        seen[id] = job
        batch.jobs[#batch.jobs + 1] = { job = job, shape = shape_of(batch, job) }
        if job.policy.cascade then
          FlowOf.check_turns(batch.cache, job.kind, job.gates or NO_GATES, job.candidates or {})
        end
        replies[place] = { id = id, created = true }
      end
    end
    replies[place] = replies[place] or { id = holder or id, created = false }
  end
  return replies
end

local function count(batch, lane, state)
  local places = batch.count_at[lane]
  if places == nil then
    places = {}
    batch.count_at[lane] = places
  end
  local one = places[state]
  if one == nil then
    one = { lane = lane, state = state, n = 0 }
    places[state] = one
    batch.counts[#batch.counts + 1] = one
  end
  one.n = one.n + 1
end

-- Finish a cascade without candidates immediately, and add its follow-up.
local function exhaust(batch, row, job)
  local now, policy = Time.now, job.policy
  row.reason = 'exhausted'
  row.finished_at = now
  row.purge_at = now + Jobs.kept_for(policy, job.key ~= nil)
  if job.key ~= nil then
    batch.keys[joined(job.tenant, job.key)].until_at = now + policy.key_for_ms
  end
  local follow = policy.on_final
  for _, state in ipairs(follow and follow.states or {}) do
    if state == 'dead' then
      batch.follow[#batch.follow + 1] = NewJobs.follow_up(row, follow)
      break
    end
  end
  Counts.happened('dead', 1)
end

-- Count the jobs to be created. Return their lanes, in order of first use.
local function count_all(batch)
  local lanes, known = {}, {}
  for _, one in ipairs(batch.jobs) do
    local job = one.job
    count(batch, job.lane, NewJobs.state_of(job, job.due_at or Time.now))
    if not known[job.lane] then
      known[job.lane] = true
      lanes[#lanes + 1] = job.lane
    end
  end
  return lanes
end

-- Request the new hours of all jobs together.
local function require_hours(batch)
  local new = {}
  for _, shape in ipairs(batch.shapes) do
    for _, use in ipairs(FlowOf.new_hours(batch.cache, shape.gates)) do
      new[#new + 1] = use
    end
  end
  Horizon.require(batch.cache, new)
end

local function number_shapes(batch)
  local numbers = {}
  for _, shape in ipairs(batch.shapes) do
    local policy = shape.policy
    numbers[policy] = numbers[policy] or Jobs.policy_number(policy)
    shape.flow, shape.keyed =
      FlowOf.make(batch.cache, shape.lane, shape.tenant, shape.kind, shape.gates)
    shape.policy_number, shape.care = numbers[policy], NewJobs.needs_care(policy)
  end
end

local function make_rows(batch)
  local rows = {}
  for place, one in ipairs(batch.jobs) do
    local row = NewJobs.row_of(one.job, one.shape)
    rows[place] = row
    if row.state == 'waiting' then
      Run.wake(row.lane)
    elseif row.state == 'scheduled' then
      Run.wake(row.lane, row.due_at)
    else
      exhaust(batch, row, one.job)
    end
  end
  return rows
end

local function write(batch, lanes)
  number_shapes(batch)
  Lanes.ensure(lanes)
  local rows = make_rows(batch)
  Jobs.insert(rows)
  if #batch.key_rows > 0 then
    Dedupe.save(batch.key_rows)
  end
  for _, one in ipairs(batch.counts) do
    Counts.move(one.lane, nil, one.state, one.n)
  end
  Counts.happened('enqueued', #rows)
  if #batch.follow > 0 then
    Insert.insert_new(batch.cache, batch.follow, false, true)
  end
end

-- Insert jobs that do not exist yet, all or none, within a step.
--   cache: the step's gates; new hours are added to it, and the caller saves it.
--   jobs: by the names of NewJob; jobs that share gates or policy have the same table.
--   limited: whether a lane's `max_backlog` applies.
--   derived: whether the ids are derived; an id that another job has is replaced by the next of its
--   series, in the given job, and is no conflict.
-- Return {id, created} for each. Refuse with KeyConflict, IdConflict, UnknownGate, InvalidValue or
-- BacklogFull, or request hours, before anything is written.
function Insert.insert_new(cache, jobs, limited, derived)
  local batch = new_batch(cache)
  local replies = sort_out(batch, jobs, derived)
  if #batch.jobs > 0 then
    local lanes = count_all(batch)
    if limited then
      Insert.check_backlog(lanes, batch.counts)
    end
    require_hours(batch)
    write(batch, lanes)
  end
  return replies
end
