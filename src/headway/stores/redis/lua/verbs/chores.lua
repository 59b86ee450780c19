-- Chores: bounded work caused only by the passing of time, by any number of workers at once, and
-- the fires of the timetable.
-- needs: base.codec, base.time, base.write, base.run, base.python, tables.counts, tables.gates
-- needs: tables.jobs, tables.signals, tables.trail, tables.workers, tables.declared
-- needs: rules.feeding, engine.horizon, engine.step, engine.gate_cache
-- needs: engine.new_jobs, engine.insert, rules.attempts, rules.check_limits, rules.promotion
-- needs: rules.sweep

local Chores = {}

-- Delete workers that stopped long ago. Return how many leases are live, and when the first ends.
local function check_workers()
  local gone, live, first = {}, 0, nil
  for _, one in ipairs(Workers.all()) do
    if not one.lapsed then
      live, first = live + 1, math.min(first or one.lease_until, one.lease_until)
    elseif one.seen_at < Time.now - Sweep.WORKER_KEPT_MS then
      gone[#gone + 1] = one.id
    end
  end
  if #gone > 0 then
    Workers.remove(gone)
  end
  return live, first
end

-- Delete jobs and events past their retention. Return how many of each.
local function forget(n)
  local ids = Jobs.purgeable(n)
  if #ids > 0 then
    for _, one in ipairs(Jobs.glance(ids)) do
      Counts.move(Jobs.flow(one.flow).lane, one.state, nil, 1)
    end
    Jobs.remove(ids)
  end
  local stale = Signals.stale(n)
  if #stale > 0 then
    Signals.drop(stale)
  end
  return #ids, #stale
end

-- Delete lines of the trail that are older than a time. Return how many.
local function forget_trail(n, before_at)
  local first = Trail.since(0, 1)[1]
  if first == nil or first.at >= before_at then
    return 0
  end
  -- One more than may be removed, because the newest line of all stays, so that its number is not
  -- reused.
  local lines, old = Trail.since(0, n + 1), {}
  for place = 1, #lines - 1 do
    if lines[place].at >= before_at then
      break
    end
    old[place] = lines[place]
  end
  Trail.remove(old)
  return #old
end

local function earliest(...)
  local first
  for place = 1, select('#', ...) do
    local at = select(place, ...)
    if at ~= nil and (first == nil or at < first) then
      first = at
    end
  end
  return first
end

-- Take up to n jobs from workers whose lease has ended. Return how many such workers there are, up
-- to n; how many runs they lost; how many jobs were taken.
local function lapse_workers(step, n)
  local workers, lost, held = Workers.lapsed(n), 0, 0
  for _, worker in ipairs(workers) do
    if held == n then
      break
    end
    local most = n - held
    local taken = Jobs.held_by(worker.id, most)
    Step.load(step, Codec.fields(taken, 'id'))
    lost, held = lost + Attempts.take_from(step, worker, taken, #taken < most), held + #taken
  end
  return #workers, lost, held
end

-- Do up to n of each chore. Return the fields of `SweepReply`.
function Chores.sweep(request)
  local n = request.n
  Horizon.begin(request)
  local step = Step.new()
  -- Requested before anything is written, because the later writes cannot be undone.
  Horizon.ask_short(n)
  Write.freely()
  Time.keep()
  local workers, lost, held = lapse_workers(step, n)
  local expired = Sweep.expire(step, n)
  -- Lapsed workers before deadlines, because a lapse may extend the deadline of the worker's jobs.
  local late = held < n and Sweep.meet_deadlines(step, n) or 0
  -- Ended jobs must be written before anything is fed or deleted.
  Step.flush(step)
  local promoted = Sweep.promote_due(step)
  local timers, fed = unpack(Feeding.run_timers(step.cache, n))
  Horizon.extend_short(step.cache, n)
  Step.flush(step)
  Write.end_journal()
  local removed, events = forget(n)
  local lines = forget_trail(n, Time.now - request.keep_trail_ms)
  local live, first_lapse = check_workers()
  return {
    lost = lost,
    deadlines = late,
    expired = expired,
    promoted = promoted,
    fed = fed,
    dead = Step.dead(step),
    removed = removed + lines,
    next_at = earliest(
      first_lapse,
      Jobs.next_deadline(),
      Jobs.next_expiry(),
      Gates.next_timer()
    ),
    again = workers == n or held == n or expired == n or late == n or timers == n
      or removed == n or events == n or lines == n,
    workers = live,
  }
end

local function job_of(row, moment)
  local id = NewJobs.fire_id(row.name, row.first_seen_at, row.revision, moment)
  local job = Python.replace(row.spec.job, {
    id = id,
    due_at = moment,
    entry = row.name,
    fired_at = moment,
  })
  job.key = nil
  if job.expires_at ~= nil then
    job.expires_at = math.min(moment + job.expires_at, CheckLimits.LATEST)
  end
  return job
end

local function create_fires(row, moments)
  local jobs = {}
  for place, moment in ipairs(moments) do
    jobs[place] = job_of(row, moment)
  end
  local cache = GateCache.new()
  Insert.insert_new(cache, jobs, false, true)
  GateCache.save(cache)
end

-- Create scheduled jobs for a timetable entry's next times, after the last fired. Return {fired,
-- current}.
function Chores.fire(request)
  Write.begin()
  local row = Declared.entry(request.entry)
  local spec = row and row.spec
  if spec == nil or row.revision ~= request.revision or not spec.enabled then
    return { fired = {}, current = false }
  end
  Write.guarded()
  Time.keep()
  Horizon.begin(request)
  local fired, last = {}, row.last_fired
  for _, moment in ipairs(request.moments) do
    if last == nil or moment > last then
      fired[#fired + 1] = moment
      last = moment
    end
  end
  if #fired > 0 and row.revision > 1 then
    fired = Promotion.undecided_fires(row, fired)
  end
  create_fires(row, fired)
  row.last_fired = last
  row.ahead_until = math.max(row.ahead_until or 0, request.ahead_until, last or 0)
  Declared.save_entry(row)
  -- Due fires were not promoted until now.
  Run.wake(spec.job.lane)
  return { fired = fired, current = true }
end
