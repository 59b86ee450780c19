-- The claim of one lane: its flows are looked at, decided, and what starts or parks is written.
-- needs: tables.jobs, tables.lanes, tables.counts
-- needs: engine.cascade, engine.claiming, engine.fairness, engine.feeding, engine.gate_book
-- needs: engine.gate_view, engine.shut_spells, engine.takings

local LaneWork = {}

-- Flows that one claim looks at in a lane.
local FLOWS = 256
-- Jobs that one claim parks in a lane.
local PARKS = 1000
-- Heads read of one flow at a time, among many flows.
local LEAST_HEADS = 16

-- One lane in one claim.
--   book: of the claim's step; request: of the claim.
--   after: where the last claim stopped: the last flow looked at, twice, and one more if anything
--   could start on that round; -1 for a new round.
function LaneWork.new(book, request, lane, after)
  local fruitful = after >= 0 and after % 2 == 1
  local row = Lanes.load({ lane })[lane]
  GateBook.learn_lane(book, lane, row)
  return {
    book = book,
    request = request,
    lane = lane,
    flow_after = after < 0 and -1 or math.floor(after / 2),
    fruitful = fruitful,
    last = true,
    again = false,
    opens_at = nil,
    row = row,
    flows = nil,
    stopped = {},
    fairness = nil,
    -- Gates and amounts of each flow, and whether its jobs hold anything, by flow.
    shared = {},
  }
end

-- Flows and what they need

local function weights_of(spec)
  local weights = {}
  for _, one in ipairs(spec.weights or {}) do
    weights[one[1]] = one[2]
  end
  return weights
end

local function tenants_of(flows)
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

local function find_flows(work)
  local found = Jobs.flows_waiting(work.lane, work.flow_after, FLOWS)
  work.flows = found
  work.last = #found < FLOWS
  -- What was found open on this round may be open still, behind the cursor.
  work.again = not work.last or work.fruitful
  local spec = Lanes.current(work.row)
  if spec.fair == 'tenant' and #found > 0 then
    local starts = Lanes.tenant_starts(work.lane, tenants_of(found))
    work.fairness = Fairness.new(work.row.level, starts, weights_of(spec))
  end
end

-- The flows that this claim has not found shut or empty.
local function open_flows(work)
  local flows = {}
  for _, flow in ipairs(work.flows) do
    if not work.stopped[flow] then
      flows[#flows + 1] = flow
    end
  end
  return flows
end

local function prefetch_shared(work, flows)
  local names, uses = {}, {}
  for _, flow in ipairs(flows) do
    if work.shared[flow] == nil then
      local key = Jobs.flow(flow)
      for _, name in ipairs(GateBook.implicit_names(key)) do
        names[#names + 1] = name
      end
      for _, use in ipairs(key.shared) do
        uses[#uses + 1] = use
      end
    end
  end
  GateBook.prefetch_uses(work.book, uses)
  GateBook.prefetch(work.book, names)
end

local function shared_of(work, flow)
  local found = work.shared[flow]
  if found ~= nil then
    return found
  end
  local key, gated = Jobs.flow(flow), false
  local gates = {}
  for _, view in ipairs(GateBook.implicit_of(work.book, key)) do
    gates[#gates + 1] = { view = view, amount = 1 }
  end
  for _, use in ipairs(key.shared) do
    gates[#gates + 1] = { view = GateBook.view(work.book, use), amount = use.amount }
  end
  for _, one in ipairs(gates) do
    gated = gated or one.view.kind ~= nil
  end
  found = { gates = gates, gated = gated }
  work.shared[flow] = found
  return found
end

local function all_fit(gates)
  for _, one in ipairs(gates) do
    if not GateView.fits(one.view, one.amount) then
      return false
    end
  end
  return true
end

-- How many times the amount can be taken now, if nobody else takes.
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

-- Tells the lane to those gates that shut a flow, to be woken when they have room. Returns when all
-- of them are open again, if that is known of each.
local function when_open(work, flow)
  local templates, latest = {}, nil
  for _, use in ipairs(Jobs.flow(flow).shared) do
    templates[use.name] = use.template
  end
  local is_known = true
  for _, one in ipairs(work.shared[flow].gates) do
    local view = one.view
    if not GateView.fits(view, one.amount) then
      local template = templates[view.name] or ''
      local at = GateBook.opens_at(work.book, view, template, one.amount)
      is_known = is_known and at ~= nil
      latest = at and math.max(at, latest or at) or latest
      LaneWork.tell_gate(work, view.name, template)
    end
  end
  return is_known and latest or nil
end

-- Remembers at a gate that this lane waits for it.
function LaneWork.tell_gate(work, gate, template)
  local row = GateBook.find(work.book, gate)
  local lanes = {}
  for place, lane in ipairs(row and row.lanes or {}) do
    if lane == work.lane then
      return
    end
    lanes[place] = lane
  end
  lanes[#lanes + 1] = work.lane
  GateBook.change(work.book, gate, template).lanes = lanes
end

-- Remembers that a flow is shut, when it opens, and whom to wake.
local function shut(work, flow)
  work.stopped[flow] = true
  ShutSpells.begin(flow)
  local at = when_open(work, flow)
  if at ~= nil then
    work.opens_at = work.opens_at and math.min(at, work.opens_at) or at
  end
end

-- The view of an open flow with its first heads; nil if it is empty.
local function view_of(work, flow, shared, most)
  local least = most
  for _, one in ipairs(shared.gates) do
    least = math.min(least, room(one.view, one.amount))
  end
  -- Without gates `most` is all; with them, one more than they let through says that there are more.
  local limit = most
  if #shared.gates > 0 then
    limit = math.min(most, math.max(LEAST_HEADS, least + 1))
  end
  local heads = Jobs.heads(flow, limit)
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
  GateBook.prefetch_uses(work.book, uses)
end

-- The views of the flows that can run now.
local function views_of(work, n)
  local flows, views = open_flows(work), {}
  if #flows == 0 then
    return views
  end
  prefetch_shared(work, flows)
  ShutSpells.prefetch(flows)
  local most = math.max(LEAST_HEADS, math.floor(2 * n / #flows))
  if #flows == 1 then
    most = n + 1
  end
  for _, flow in ipairs(flows) do
    local shared = shared_of(work, flow)
    if not all_fit(shared.gates) then
      shut(work, flow)
    else
      local view = view_of(work, flow, shared, most)
      if view == nil then
        work.stopped[flow] = true
      else
        views[#views + 1] = view
      end
    end
  end
  prefetch_keyed(work, views)
  return views
end

-- What was decided

local function note_closed(work, views, decision)
  local closed = {}
  for _, flow in ipairs(decision.closed) do
    closed[flow] = true
  end
  for _, view in ipairs(views) do
    if closed[view.flow] then
      shut(work, view.flow)
    elseif not decision.again then
      ShutSpells.finish(view.flow)
    end
  end
end

-- The jobs parked at each gate, those that never fit apart, in the order met.
local function grouped(parks)
  local groups, at = {}, {}
  for _, park in ipairs(parks) do
    local place = (park.never_fits and '1' or '0') .. park.gate
    local group = at[place]
    if group == nil then
      group = { gate = park.gate, unfit = park.never_fits, first = park.head, ids = {} }
      at[place] = group
      groups[#groups + 1] = group
    end
    group.ids[#group.ids + 1] = park.head.id
  end
  return groups
end

local function write_parks(work, parks)
  for _, group in ipairs(grouped(parks)) do
    Jobs.park(group.ids, group.gate, group.unfit)
    if not group.unfit then
      Feeding.arm(work.book, GateBook.use_at(group.first, group.gate))
    end
  end
  if #parks > 0 then
    Counts.move(work.lane, 'waiting', 'parked', #parks)
    Counts.happened('parked', #parks)
  end
end

-- Whoever takes a job with a ticket out of its flow feeds the next.
local function feed_next(work, fed, known)
  for _, one in ipairs(fed) do
    local gate = one.head.ticket
    if gate ~= nil then
      local place = string.format('%.0f:', one.flow) .. gate
      if not known[place] then
        known[place] = true
        Feeding.feed_flow(work.book, gate, one.flow)
      end
    end
  end
end

local function write(work, decision, by_flow)
  local takings = Takings.new(work.book, work.request, work.lane)
  for _, start in ipairs(decision.starts) do
    Takings.add(takings, start, by_flow[start.flow])
  end
  Takings.write(takings)
  write_parks(work, decision.parks)
  local known = {}
  feed_next(work, decision.parks, known)
  feed_next(work, decision.starts, known)
end

-- The lane's level rises to the least of those who wait or started.
local function level_of(work, tenants)
  local level
  for _, tenant in ipairs(tenants) do
    local own = Fairness.of(work.fairness, tenant)
    level = level and math.min(level, own) or own
  end
  return level or work.fairness.level
end

local function save_fairness(work, started)
  local fairness = work.fairness
  if fairness == nil or #started == 0 then
    return
  end
  local starts, flows = {}, open_flows(work)
  for _, one in ipairs(started) do
    starts[one.view.tenant] = fairness.starts[one.view.tenant]
    flows[#flows + 1] = one.view.flow
  end
  Lanes.save_tenant_starts(work.lane, starts)
  local level = level_of(work, tenants_of(flows))
  if level > work.row.level then
    work.row.level, fairness.level = level, level
    Lanes.save(work.row)
  end
end

-- One round: what it decides is written. Returns the decision, nil if no flow can run, and adds to
-- `started` what starts.
local function one_round(work, n, free, started)
  local views = views_of(work, n)
  if #views == 0 then
    return nil
  end
  local by_flow = {}
  for _, view in ipairs(views) do
    by_flow[view.flow] = view
  end
  local function gate(use)
    return GateBook.view(work.book, use)
  end
  -- Nothing is written within a round, so each queue is looked at once.
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
    return of_flow[name]
  end
  local decision = Claiming.decide(views, gate, ahead, n, free, work.fairness)
  write(work, decision, by_flow)
  -- After the writing: a rate opens again when what has just started leaves its window.
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

-- Starts up to n jobs, gated ones up to `free`. Returns {start, view} each, in order of start.
function LaneWork.take(work, n, free)
  if work.row == nil then
    return {}
  end
  if work.flows == nil then
    find_flows(work)
  end
  local started, parked = {}, 0
  while #started < n do
    local decision = one_round(work, n - #started, free, started)
    if decision == nil then
      break
    end
    free = free - count_gated(decision.starts)
    parked = parked + #decision.parks
    if not decision.again then
      break
    end
    if parked >= PARKS then
      work.again, work.fruitful = true, true
      break
    end
  end
  work.fruitful = work.fruitful or #started > 0
  save_fairness(work, started)
  return started
end

-- The cursor: the last flow looked at, twice, and one more if anything could start; -1 when the
-- round is over.
function LaneWork.after(work)
  if work.last or work.flows == nil or #work.flows == 0 then
    return -1
  end
  return work.flows[#work.flows] * 2 + (work.fruitful and 1 or 0)
end
