-- The flows of a lane in one claim: those that can run, with what they need, and those shut by a
-- shared gate.
-- needs: rules.cached_gates, base.codec, base.keys, base.time, base.write, tables.jobs
-- needs: tables.lanes, rules.cascade, rules.fairness, rules.gate_view, engine.gate_cache
-- needs: engine.gate_names, rules.lane_limits

local LaneFlows = {}

-- By flow; false for a flow that was never found shut.
local periods = {}

-- Read the periods of flows together.
function LaneFlows.prefetch_closed_periods(flows)
  local wanted, fields = {}, {}
  for _, flow in ipairs(flows) do
    if periods[flow] == nil then
      periods[flow] = false
      wanted[#wanted + 1] = flow
      fields[#fields + 1] = Codec.n4(flow)
    end
  end
  for place, kept in ipairs(Write.read(Keys.shut, fields)) do
    if kept then
      periods[wanted[place]] = {
        since = Codec.read6(kept, 1),
        until_at = #kept > 6 and Codec.read6(kept, 7) or nil,
      }
    end
  end
end

-- Return the flow's last period {since, until_at}, without an end while it is shut; nil if there is
-- none.
function LaneFlows.closed_period_of(flow)
  if periods[flow] == nil then
    LaneFlows.prefetch_closed_periods({ flow })
  end
  return periods[flow] or nil
end

local function keep(flow, since, until_at)
  periods[flow] = { since = since, until_at = until_at }
  local kept = Codec.n6(since) .. (until_at and Codec.n6(until_at) or '')
  Write.put(Keys.shut, Codec.n4(flow), kept)
end

-- Record that a claim found the flow shut.
function LaneFlows.begin_closed_period(flow)
  local period = LaneFlows.closed_period_of(flow)
  if period == nil or period.until_at ~= nil then
    keep(flow, Time.now, nil)
  end
end

-- Record that a claim found the flow open. Jobs that waited through the period and start later still
-- count it.
function LaneFlows.finish_closed_period(flow)
  local period = LaneFlows.closed_period_of(flow)
  if period ~= nil and period.until_at == nil then
    keep(flow, period.since, Time.now)
  end
end

-- Return how much of an interval is within the flow's last period, ms.
function LaneFlows.shut_ms(flow, from, till)
  local period = LaneFlows.closed_period_of(flow)
  if period == nil then
    return 0
  end
  local last = period.until_at and math.min(period.until_at, till) or till
  return math.max(0, last - math.max(period.since, from))
end

-- A first round that would read more heads than this for each job that may start reads only those
-- that it examines, because few can start. Later rounds follow jobs that were parked.
local UNREAD = 4

-- Return the implicit gates of a flow that are defined.
local function implicit_of(cache, flow)
  local views = {}
  for place, name in ipairs(GateNames.implicit_gates(flow.lane, flow.tenant, flow.kind)) do
    local capacity = place == 2 and GateCache.concurrency(cache, flow.lane) or nil
    views[#views + 1] = CachedGates.implicit(cache, name, capacity)
  end
  return views
end

local function weights_of(spec)
  local weights = {}
  for _, one in ipairs(spec.weights or {}) do
    weights[one[1]] = one[2]
  end
  return weights
end

-- Return the tenants of flows, each once.
function LaneFlows.tenants_of(flows)
  local tenants, known = {}, {}
  for _, flow in ipairs(flows) do
    local tenant = Jobs.flow(flow).tenant
    if not known[tenant] then
      known[tenant] = true
      tenants[#tenants + 1] = tenant
    end
  end
  return tenants
end

-- Find the flows that this claim examines.
function LaneFlows.find(work)
  local found = Jobs.flows_waiting(work.lane, work.flow_after, LaneLimits.FLOWS)
  work.last = #found < LaneLimits.FLOWS
  if work.last and work.flow_after >= 0 and (#found > 0 or work.fruitful) then
    -- Fill a short last page with the first flows; it would drain faster than the others.
    for _, flow in ipairs(Jobs.flows_waiting(work.lane, -1, LaneLimits.FLOWS - #found)) do
      if flow <= work.flow_after then
        found[#found + 1] = flow
      end
    end
  end
  work.flows = found
  -- Flows found open in this round may still be open, before the cursor.
  work.again = not work.last or work.fruitful
  local spec = Lanes.current(work.row)
  if spec.fair == 'tenant' and #found > 0 then
    local starts = Lanes.tenant_starts(work.lane, LaneFlows.tenants_of(found))
    work.fairness = {
      level = work.row.level,
      starts = starts,
      weights = weights_of(spec),
      ready = {},
      held = {},
      changed = {},
      step = 0,
    }
  end
end

-- Return the flows that this claim has not found shut or empty.
function LaneFlows.open(work)
  local flows = {}
  for _, flow in ipairs(work.flows) do
    if not work.stopped[flow] then
      flows[#flows + 1] = flow
    end
  end
  return flows
end

local function prefetch_shared(work, flows)
  -- Most flows use the same few gates, and a pool has many names: list each gate once.
  local names, uses, listed, known = {}, {}, {}, {}
  for _, flow in ipairs(flows) do
    if work.shared[flow] == nil then
      local key = Jobs.flow(flow)
      for _, name in ipairs(GateNames.implicit_gates(key.lane, key.tenant, key.kind)) do
        if not listed[name] then
          listed[name] = true
          names[#names + 1] = name
        end
      end
      for _, use in ipairs(key.shared) do
        if not known[use.name] then
          known[use.name] = true
          uses[#uses + 1] = use
        end
      end
    end
  end
  GateCache.prefetch_uses(work.cache, uses)
  GateCache.prefetch(work.cache, names)
  for _, name in ipairs(names) do
    work.has_implicit = work.has_implicit or GateCache.find(work.cache, name) ~= nil
  end
end

local function shared_of(work, flow)
  local found = work.shared[flow]
  if found ~= nil then
    return found
  end
  local key, gated = Jobs.flow(flow), false
  local gates = {}
  for _, view in ipairs(work.has_implicit and implicit_of(work.cache, key) or {}) do
    gates[#gates + 1] = { view, 1 }
  end
  for _, use in ipairs(key.shared) do
    gates[#gates + 1] = { CachedGates.view(work.cache, use), use.amount }
  end
  for _, one in ipairs(gates) do
    gated = gated or one[1].kind ~= nil
  end
  found = { gates = gates, gated = gated }
  work.shared[flow] = found
  return found
end

-- Return the gates without room for the amount, for any job.
local function closed_of(gates)
  local closed = {}
  for _, one in ipairs(gates) do
    if not GateView.fits(one[1], one[2]) then
      closed[#closed + 1] = one
    end
  end
  return closed
end

-- Return how many times the amount can be taken now.
local function room(view, amount)
  if #view.members == 0 then
    return math.floor(view.free / amount)
  end
  local times = 0
  for _, member in ipairs(view.members) do
    times = times + math.floor(member.free / amount)
  end
  return times
end

-- Return when a gate that lacks an amount opens by itself, if known; the first time, add the lane to
-- it, to be woken when it has room.
--   full: it only lacks room, so that this is not known.
local function opening_of(work, gate, amount, full)
  local place = amount .. ':' .. gate.name
  local known = work.opening[place]
  if known == nil then
    known = not full and CachedGates.opens_at(work.cache, gate, gate.template, amount) or false
    work.opening[place] = known
    CachedGates.remember_lane(work.cache, gate.name, gate.template, work.lane)
  end
  return known or nil
end

-- Return when all gates that shut a flow are open again, if known for each.
local function when_open(work, flow, order)
  local latest
  local is_known = true
  for _, one in ipairs(work.shared[flow].gates) do
    local view, amount = one[1], one[2]
    if not GateView.fits(view, amount, order) then
      local at = opening_of(work, view, amount, false)
      if at == nil and view.reserved and GateView.fits(view, amount) then
        at = view.reserved.until_at
      end
      is_known = is_known and at ~= nil
      latest = at and math.max(at, latest or at) or latest
    end
  end
  return is_known and latest or nil
end

-- Record a time at which something may be claimable.
function LaneFlows.note_opening(work, at)
  work.opens_at = work.opens_at and math.min(at, work.opens_at) or at
end

-- Record that a flow is shut, when it opens, and which lane to wake.
--   order: of its head; nil if a gate has no room for any job of the flow.
function LaneFlows.shut(work, flow, order)
  work.stopped[flow] = true
  LaneFlows.begin_closed_period(flow)
  local at = when_open(work, flow, order)
  if at ~= nil then
    LaneFlows.note_opening(work, at)
  end
end

-- Return whether a flow can only wait; a flow that needs several permits may reserve them.
local function is_shut(closed)
  for _, one in ipairs(closed) do
    if not GateView.is_short_for(one[1], one[2]) then
      return true
    end
  end
  return false
end

-- Return the view of a flow with its first heads, a single one if it is short; nil if it is empty.
local function view_of(work, flow, shared, most, least, short)
  local limit = most
  if short then
    limit = 1
  elseif least < most and #shared.gates > 0 then
    local free = most
    for _, one in ipairs(shared.gates) do
      free = math.min(free, room(one[1], one[2]))
    end
    -- With gates, one more head than they admit shows that there are more.
    limit = math.min(most, math.max(least, free + 1))
  end
  local heads = work.unread and Jobs.unread_heads(flow, limit) or Jobs.heads(flow, limit)
  if #heads == 0 then
    return nil
  end
  return {
    flow = flow,
    tenant = Jobs.flow(flow).tenant,
    shared = shared.gates,
    gated = shared.gated,
    heads = heads,
    more = #heads == limit,
  }
end

local function prefetch_keyed(work, views)
  local uses = {}
  for _, view in ipairs(views) do
    for _, head in ipairs(view.heads) do
      for _, use in ipairs(head.keyed) do
        if not string.find(use.name, Cascade.CANDIDATE, 1, true) then
          uses[#uses + 1] = use
        end
      end
    end
  end
  GateCache.prefetch_uses(work.cache, uses)
end

-- Record that a flow waits for room; a flow that is closed, or outside its hours, does not.
local function hold(work, flow, gates)
  local fairness = work.fairness
  if fairness == nil then
    return
  end
  Fairness.stop(fairness, flow)
  for _, one in ipairs(gates) do
    if one[1].shut then
      return
    end
  end
  fairness.held[Jobs.flow(flow).tenant] = true
end

-- Record that a flow waits, and return true, if a full gate makes other checks needless. Only this
-- gate wakes the lane: the flow cannot run before.
--   known: what was found of the gates of earlier flows.
local function skip_if_full(work, flow, known)
  local key = Jobs.flow(flow)
  if #key.shared == 0 or work.has_implicit and CachedGates.is_closed_implicitly(work.cache, key) then
    return false
  end
  local use = CachedGates.full_gate(work.cache, key, known)
  if use == nil then
    return false
  end
  hold(work, flow, {})
  work.stopped[flow] = true
  LaneFlows.begin_closed_period(flow)
  opening_of(work, use, use.amount, true)
  return true
end

-- Record that a flow can run, if there are handlers for it.
local function note_ready(work, view, free, short)
  local fairness = work.fairness
  if fairness ~= nil and view.gated and free <= 0 then
    fairness.held[view.tenant] = true
  elseif fairness ~= nil and work.rounds == 1 and not short then
    fairness.ready[view.flow] = view.tenant
  end
end

-- Return the view of a flow, unless it is empty or can only wait, which is recorded.
local function view_if_open(work, flow, most, least, free)
  local shared = shared_of(work, flow)
  local closed = closed_of(shared.gates)
  local short = #closed > 0
  if short then
    hold(work, flow, shared.gates)
  end
  if is_shut(closed) then
    LaneFlows.shut(work, flow)
    return nil
  end
  local view = view_of(work, flow, shared, most, least, short)
  if view ~= nil then
    note_ready(work, view, free, short)
    return view
  end
  work.stopped[flow] = true
  work.emptied[#work.emptied + 1] = flow
  if work.fairness ~= nil then
    Fairness.stop(work.fairness, flow)
  end
  return nil
end

local function has_expired(row)
  return row.run == 0 and row.expires_at ~= nil and row.expires_at <= Time.now
end

-- Remove from each flow's heads the first that has expired, and those behind it.
local function stop_at_expired(views)
  for _, view in ipairs(views) do
    local ids = Codec.fields(view.heads, 'id')
    local rows, fresh = Jobs.load(ids), {}
    for place, id in ipairs(ids) do
      if has_expired(rows[id]) then
        view.heads, view.more = fresh, false
        break
      end
      fresh[place] = view.heads[place]
    end
  end
end

-- Return how many heads to read of a flow whose heads the last round parked: if all its keys are
-- taken, few of its jobs can start, however many heads a round reads.
local function heads_to_park(work, flow)
  local parked = work.parked_last[flow]
  if parked == nil then
    return 0
  end
  local left = math.min(LaneLimits.GROWTH * work.parked_last.all, work.most_parked - work.parked)
  return math.floor(left * parked / work.parked_last.all)
end

-- Return the views of the flows that can run now, with `free` handlers for gated jobs.
function LaneFlows.views(work, n, free)
  local flows, views = LaneFlows.open(work), {}
  work.emptied = {}
  if #flows == 0 then
    return views
  end
  prefetch_shared(work, flows)
  LaneFlows.prefetch_closed_periods(flows)
  local least = LaneLimits.LEAST_HEADS
  if #flows > LaneLimits.MANY_FLOWS then
    least = math.min(LaneLimits.LEAST_HEADS, LaneLimits.FIRST_HEADS * 2 ^ work.rounds)
  end
  work.rounds = work.rounds + 1
  local most = math.max(least, math.floor(2 * n / #flows))
  if #flows == 1 then
    most = n + 1
  end
  work.unread = work.rounds == 1 and least * #flows > UNREAD * n
  local known = {}
  for _, flow in ipairs(flows) do
    local deep = heads_to_park(work, flow)
    local view = not skip_if_full(work, flow, known)
      and view_if_open(work, flow, math.max(most, deep), math.max(least, deep), free)
    if view then
      views[#views + 1] = view
    end
  end
  if work.expiring then
    stop_at_expired(views)
  end
  if not work.unread then
    prefetch_keyed(work, views)
  end
  return views
end
