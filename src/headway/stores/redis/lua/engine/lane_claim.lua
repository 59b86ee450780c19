-- The claim of one lane: read its flows, decide, and write starts and parked jobs.
-- needs: rules.cached_gates, tables.jobs, tables.lanes, tables.counts, rules.claiming
-- needs: rules.fairness, rules.gate_view, rules.feeding, engine.gate_cache, engine.lane_flows
-- needs: engine.start_writer, rules.lane_limits

local LaneClaim = {}

-- Create the state of one lane in a claim.
--   cache: of the claim's step; request: of the claim.
--   after: where the last claim stopped: twice the last flow examined, plus one if any job could
--   start in that round; -1 for a new round.
--   expiring: whether waiting jobs may have expired, which later steps end.
function LaneClaim.new(cache, request, lane, after, expiring)
  local fruitful = after >= 0 and after % 2 == 1
  local row = Lanes.load({ lane })[lane]
  GateCache.learn_lane(cache, lane, row)
  return {
    cache = cache,
    request = request,
    lane = lane,
    expiring = expiring,
    flow_after = after < 0 and -1 or math.floor(after / 2),
    fruitful = fruitful,
    rounds = 0,
    parked = 0,
    -- How many jobs of each flow the last round parked, and of all flows.
    parked_last = { all = 0 },
    most_parked = math.max(LaneLimits.LEAST_PARKS, math.floor(LaneLimits.PARKS / #request.lanes)),
    last = true,
    again = false,
    opens_at = nil,
    -- When each gate that lacks an amount opens by itself, false if unknown; by amount and gate.
    opening = {},
    row = row,
    flows = nil,
    stopped = {},
    fairness = nil,
    -- Whether an implicit gate of the flows is known: most have no row, so they need not be
    -- examined for each flow.
    has_implicit = GateCache.concurrency(cache, lane) ~= nil,
    -- Gates and amounts of each flow, and whether its jobs take permits, by flow.
    shared = {},
  }
end

-- Record that the flows that were found empty in this round are open.
local function finish_emptied(work)
  for _, flow in ipairs(work.emptied) do
    LaneFlows.finish_closed_period(flow)
  end
end

local function note_closed(work, views, decision)
  for _, view in ipairs(views) do
    local order = decision.closed[view.flow]
    if order then
      LaneFlows.shut(work, view.flow, order)
    elseif not decision.again then
      LaneFlows.finish_closed_period(view.flow)
    end
  end
  if not decision.again then
    finish_emptied(work)
  end
end

-- Add jobs to groups by gate and amount of those that never fit, in order of first use.
local function add_to_groups(groups, at, parks)
  for _, park in ipairs(parks) do
    local place = park.unfit .. ':' .. park.gate
    local group = at[place]
    if group == nil then
      group = { gate = park.gate, unfit = park.unfit, first = park.head, ids = {} }
      at[place] = group
      groups[#groups + 1] = group
    end
    group.ids[#group.ids + 1] = park.head.id
  end
end

local function write_parks(work, decision)
  local parks, groups, at = decision.parks, {}, {}
  add_to_groups(groups, at, parks)
  -- Behind the jobs that the moved ones follow: the first of a group sets the gate's timer.
  add_to_groups(groups, at, decision.moved)
  for _, group in ipairs(groups) do
    Jobs.park(group.ids, group.gate, group.unfit)
    if group.unfit == 0 then
      local use = CachedGates.use_at(group.first, group.gate)
      local kept = GateView.kept_from(CachedGates.view(work.cache, use), group.first.order)
      Feeding.arm(work.cache, use, kept)
    end
  end
  if #parks > 0 then
    Counts.move(work.lane, 'waiting', 'parked', #parks)
    Counts.happened('parked', #parks)
  end
end

-- Count the jobs with a ticket that leave their flow, by flow and gate.
local function count_left(groups, at, left)
  for _, one in ipairs(left) do
    local gate = one.head.ticket
    if gate ~= nil then
      local place = string.format('%.0f:', one.flow) .. gate
      local group = at[place]
      if group == nil then
        group = { gate = gate, flow = one.flow, left = 0 }
        at[place] = group
        groups[#groups + 1] = group
      end
      group.left = group.left + 1
    end
  end
end

-- Feed behind the jobs with a ticket that leave their flow.
local function feed_next(work, decision)
  local groups, at = {}, {}
  count_left(groups, at, decision.parks)
  count_left(groups, at, decision.starts)
  for _, group in ipairs(groups) do
    Feeding.feed_flow(work.cache, group.gate, group.flow, group.left)
  end
end

local function write(work, decision, by_flow)
  local writer = StartWriter.new(work.cache, work.request, work.lane)
  for _, start in ipairs(decision.starts) do
    StartWriter.add(writer, start, by_flow[start.flow])
  end
  StartWriter.write(writer)
  for _, view in pairs(decision.reserved) do
    local renew_at = CachedGates.reserve(work.cache, view)
    if renew_at ~= nil then
      LaneFlows.note_opening(work, renew_at)
    end
  end
  write_parks(work, decision)
  feed_next(work, decision)
  for _, gate in ipairs(writer.ended) do
    -- Jobs parked there waited for the reservation to end.
    Feeding.feed_gate(work.cache, gate)
  end
end

local function save_fairness(work)
  local fairness = work.fairness
  if fairness == nil or next(fairness.changed) == nil then
    return
  end
  Fairness.raise_level(fairness)
  if fairness.level > work.row.level then
    work.row.level = fairness.level
    Lanes.save(work.row)
  end
  local starts = {}
  for tenant in pairs(fairness.changed) do
    starts[tenant] = fairness.starts[tenant]
  end
  Lanes.save_tenant_starts(work.lane, starts)
  fairness.changed = {}
end

-- Decide and write one round, and add its starts to `started`. Return the decision, nil if no flow
-- can run.
local function one_round(work, n, free, started)
  local views = LaneFlows.views(work, n, free)
  if #views == 0 then
    finish_emptied(work)
    return nil
  end
  local by_flow = {}
  for _, view in ipairs(views) do
    by_flow[view.flow] = view
  end
  local function gate(use)
    return CachedGates.view(work.cache, use)
  end
  -- Nothing is written within a round, so each queue is read once.
  local orders = {}
  local function ahead(flow, name)
    local of_flow = orders[flow]
    if of_flow == nil then
      of_flow = {}
      orders[flow] = of_flow
    end
    if of_flow[name] == nil then
      of_flow[name] = Jobs.parked_order(name, flow) or false
    end
    return of_flow[name] or nil
  end
  local function heads(flow, name, limit)
    return Jobs.parked_heads(name, flow, limit)
  end
  local parked = { first = ahead, heads = heads }
  local decision = Claiming.decide(views, gate, parked, n, free, work.fairness)
  write(work, decision, by_flow)
  -- After writing, because a rate opens again when the jobs just started leave its window.
  note_closed(work, views, decision)
  for _, start in ipairs(decision.starts) do
    started[#started + 1] = { start = start, view = by_flow[start.flow] }
  end
  return decision
end

local function count_gated(starts)
  local gated = 0
  for _, start in ipairs(starts) do
    gated = gated + (start.gated and 1 or 0)
  end
  return gated
end

-- Start up to n jobs, of these up to `free` gated ones. Return {start, view} each, in order of
-- start.
function LaneClaim.take(work, n, free)
  if work.row == nil then
    return {}
  end
  if work.flows == nil then
    LaneFlows.find(work)
  end
  local started = {}
  while #started < n do
    local decision = one_round(work, n - #started, free, started)
    if decision == nil then
      break
    end
    free = free - count_gated(decision.starts)
    work.parked_last = { all = #decision.parks }
    for _, park in ipairs(decision.parks) do
      work.parked_last[park.flow] = (work.parked_last[park.flow] or 0) + 1
    end
    work.parked = work.parked + #decision.parks + #decision.moved
    if not decision.again then
      break
    end
    if work.parked >= work.most_parked then
      work.again, work.fruitful = true, true
      break
    end
  end
  work.fruitful = work.fruitful or #started > 0
  save_fairness(work)
  return started
end

-- Return the cursor: twice the last flow examined, plus one if any job could start; -1 at the end
-- of the round.
function LaneClaim.after(work)
  if work.last or work.flows == nil or #work.flows == 0 then
    return -1
  end
  return work.flows[#work.flows] * 2 + (work.fruitful and 1 or 0)
end
