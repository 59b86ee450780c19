-- Claim: promote due jobs, then start jobs in order with all their permits.
-- quick: quick.claim
-- needs: base.python, base.time, base.write, tables.gates, tables.jobs, tables.workers
-- needs: rules.promotion, rules.feeding, engine.gate_cache, engine.lane_share, engine.lane_claim
-- needs: rules.attempts, rules.claim_limits, rules.sweep, engine.step

local Claim = {}

local function append(ids, more)
  for _, id in ipairs(more) do
    ids[#ids + 1] = id
  end
end

local function worker_of(request, dead)
  local worker = Workers.load(request.worker)
  if worker == nil then
    return Workers.new(request.worker)
  end
  if worker.lease_until <= Time.now and not worker.lapsed then
    -- Its previous runs are no longer live; those it claims from now on are.
    local step = Step.new()
    Attempts.lapse(step, worker)
    Step.flush(step)
    append(dead, Step.dead(step))
  end
  return worker
end

local function chosen_members(members)
  local chosen
  for gate, member in pairs(members) do
    if member ~= '' then
      chosen = chosen or {}
      chosen[gate] = member
    end
  end
  return chosen or false
end

-- Create a result that collects jobs, with their flows and policies once each.
local function new_result()
  return { jobs = {}, flows = {}, policies = {}, has_flow = {}, has_policy = {} }
end

local function add_flow(result, flow)
  if not result.has_flow[flow] then
    result.has_flow[flow] = true
    local key = Jobs.flow(flow)
    result.flows[#result.flows + 1] = { flow, key.lane, key.tenant, key.kind }
  end
end

local function add_policy(result, policy)
  if not result.has_policy[policy] then
    result.has_policy[policy] = true
    result.policies[#result.policies + 1] = { policy, Jobs.policy(policy) }
  end
end

local function add_start(result, start)
  local head, order = start.head, start.head.order
  add_flow(result, start.flow)
  add_policy(result, head.policy)
  result.jobs[#result.jobs + 1] = {
    head.id,
    head.run + 1,
    head.attempt + 1,
    head.stage,
    head.subject or false,
    head.args,
    order.priority,
    order.due_at,
    start.flow,
    head.policy,
    start.gated,
    chosen_members(start.members),
    start.candidate,
  }
end

local function add_row(result, row)
  add_flow(result, row.flow)
  add_policy(result, row.policy)
  result.jobs[#result.jobs + 1] = {
    row.id,
    row.run,
    row.attempt,
    row.stage,
    row.subject or false,
    row.args,
    row.priority,
    row.due_at,
    row.flow,
    row.policy,
    row.gated,
    chosen_members(row.members),
    row.candidate,
  }
end

local function reply(result, worker, next_at, again, after, dead)
  return {
    jobs = result.jobs,
    flows = result.flows,
    policies = result.policies,
    lease_until = worker.lease_until,
    next_at = next_at,
    again = again,
    after = after,
    dead = dead,
  }
end

-- Return the reply to a repeated request: the same runs that are still live.
local function repeat_reply(request, worker, dead)
  local result = new_result()
  if request.request == worker.request then
    for _, row in ipairs(Jobs.taken_by(request.worker, request.request)) do
      add_row(result, row)
    end
  end
  return reply(result, worker, Time.now, true, {}, dead)
end

-- Return whether anything is due. Mostly nothing is, and then the modules that handle it need not
-- be initialized.
local function is_anything_due(request)
  if #Jobs.expired(1) > 0 or #Gates.due_timers(1) > 0 then
    return true
  end
  for _, one in ipairs(request.lanes) do
    local due_at = Jobs.next_due(one[1])
    if due_at ~= nil and due_at <= Time.now then
      return true
    end
  end
  return false
end

local function names_of(lanes)
  local names = {}
  for place, one in ipairs(lanes) do
    names[place] = one[1]
  end
  return names
end

-- Apply what has become due. Return whether expired jobs may be left.
local function apply_due(request, dead)
  if not is_anything_due(request) then
    return false
  end
  local step = Step.new()
  local expired = Sweep.expire(step, ClaimLimits.EXPIRIES)
  if expired > 0 then
    -- Expired jobs must be written before due jobs are promoted, because they may be the same.
    Step.flush(step)
  end
  Feeding.run_timers(step.cache, ClaimLimits.TIMERS)
  Promotion.promote(step, Python.unique(names_of(request.lanes)))
  Step.flush(step)
  append(dead, Step.dead(step))
  return expired == ClaimLimits.EXPIRIES
end

local function cursors_of(request)
  local cursors = {}
  for _, one in ipairs(request.after or {}) do
    cursors[one[1]] = one[2]
  end
  return cursors
end

-- Create the state of one claim over its lanes.
--   expiring: as for `LaneClaim.new`.
local function new_work(request, expiring)
  local cache, cursors = GateCache.new(), cursors_of(request)
  local lanes, order = {}, {}
  for _, one in ipairs(request.lanes) do
    local lane = one[1]
    if lanes[lane] == nil then
      lanes[lane] = LaneClaim.new(cache, request, lane, cursors[lane] or -1, expiring)
      order[#order + 1] = lanes[lane]
    end
  end
  return {
    request = request,
    cache = cache,
    lanes = lanes,
    order = order,
    result = new_result(),
    free = request.free,
  }
end

local function take(work, lane, n)
  if n <= 0 then
    return
  end
  for _, one in ipairs(LaneClaim.take(work.lanes[lane], n, work.free)) do
    add_start(work.result, one.start)
    work.free = work.free - (one.start.gated and 1 or 0)
  end
end

local function shares_of(request)
  local lanes, n = request.lanes, request.n
  if #lanes > 1 and request.order ~= 'strict' then
    return LaneShare.share(lanes, n, request.request)
  end
  local shares = {}
  for place, one in ipairs(lanes) do
    shares[place] = { one[1], n }
  end
  return shares
end

-- Take each lane's share, then what the others left.
local function run(work)
  local request, jobs = work.request, work.result.jobs
  local shares = shares_of(request)
  for _, one in ipairs(shares) do
    take(work, one[1], math.min(one[2], request.n - #jobs))
  end
  if #work.order > 1 and request.order == 'weighted' then
    for _, one in ipairs(shares) do
      take(work, one[1], request.n - #jobs)
    end
  end
  GateCache.save(work.cache)
end

local function earlier(one, other)
  if one == nil or other == nil then
    return one or other
  end
  return math.min(one, other)
end

-- Return when something may next become claimable; whether flows were left unexamined; and where
-- each lane's next claim continues.
local function outlook(work)
  local next_at, again, after = Gates.next_timer(), false, {}
  for _, one in ipairs(work.order) do
    next_at = earlier(next_at, earlier(one.opens_at, Jobs.next_due(one.lane)))
    again = again or one.again
    local cursor = LaneClaim.after(one)
    if cursor >= 0 then
      after[#after + 1] = { one.lane, cursor }
    end
  end
  return next_at, again, after
end

local function keep_worker(worker, request, started)
  if started == 0 and worker.lease_until >= Time.now + math.floor(request.lease_ms / 2) then
    return
  end
  worker.request = started > 0 and request.request or worker.request
  worker.seen_at = Time.now
  worker.lease_until = math.max(worker.lease_until, Time.now + request.lease_ms)
  worker.lapsed = false
  if #worker.lanes == 0 then
    worker.lanes = names_of(request.lanes)
  end
  Workers.save(worker)
end

-- Start up to n jobs of the lanes, of these up to `free` with gates. Return them, when to claim
-- again, and where the next claim continues.
function Claim.run(request)
  Write.freely()
  Time.keep()
  local dead = {}
  local worker = worker_of(request, dead)
  if request.request <= worker.request then
    return repeat_reply(request, worker, dead)
  end
  local left = apply_due(request, dead)
  local work = new_work(request, left)
  run(work)
  local started = #work.result.jobs
  keep_worker(worker, request, started)
  local next_at, again, after = outlook(work)
  return reply(work.result, worker, next_at, left or again or started >= request.n, after, dead)
end
