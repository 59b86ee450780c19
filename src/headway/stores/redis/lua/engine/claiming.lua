-- The one place of the scripts where a claim is decided: which jobs start, and where the others park.
--
-- The rules, the same as those of headway.core.claim:
--
-- 1. A flow runs while all its shared gates fit its amounts. The first that does not stops the flow.
-- 2. Within a flow, jobs are taken by priority, due time, arrival. Between the flows of a lane the
--    best head goes first; in a fair lane the tenant with the fewest starts by weight goes first
--    among heads of equal priority.
-- 3. A head whose keyed gates all fit starts and takes all permits, or none.
-- 4. A head that finds a keyed gate closed is parked there, and the next of its flow is looked at. A
--    parked job that could pass one day holds back those behind it *at that gate in that flow*.
-- 5. A job with gates starts only if an idle handler is there for it; the others up to `n`.
-- 6. A head that is kept back only because it asks for several permits where too few are free reserves
--    these gates. Until it starts, jobs that come after it by priority, due time and arrival take
--    nothing that it needs, in any lane. It holds nothing: a job that comes before it takes what is
--    free, so that no two wait for each other.
-- 7. When a job with a ticket is parked elsewhere, the round ends, because the store must feed the
--    next before the flow's order can be known.
-- needs: base.order, engine.cascade, engine.fairness, engine.gate_view, engine.rank_heap

local Claiming = {}

local NO_MEMBERS = {}
local NO_CANDIDATE = { '' }

-- Whether a parked head may be moved into its flow with a ticket. A head that does not fit beside
-- the tickets before it stays, and those behind it with it. A move is in vain only if another flow
-- was faster, or if a pool has room enough but not in one member.
--   view: the gate as it is now.
--   ahead: what the gate's ticketed jobs before it in the flow ask for together.
--   amount: what it asks for itself; order: its own.
function Claiming.may_feed(view, ahead, amount, order)
  return GateView.fits(view, amount, order) and ahead + amount <= GateView.total(view, order)
end

local function new_decision()
  return { starts = {}, parks = {}, again = false, closed = {}, reserved = {} }
end

local function new_start(head, flow, members, candidate, gated)
  return { head = head, flow = flow, members = members, candidate = candidate, gated = gated }
end

local function all_fit(shared)
  for _, one in ipairs(shared) do
    if not GateView.fits(one.view, one.amount) then
      return false
    end
  end
  return true
end

-- Whether all heads need the same and nothing is, or would have to be, reserved.
local function is_plain(shared, heads, count)
  for _, one in ipairs(shared) do
    if one.amount > 1 or one.view.reserved then
      return false
    end
  end
  for place = 1, count do
    local head = heads[place]
    if #head.keyed > 0 or head.ticket ~= nil or #head.candidates > 0 then
      return false
    end
  end
  return true
end

-- The pools of a flow, and its other gates.
local function sorted_out(shared)
  local pools, others = {}, {}
  for _, one in ipairs(shared) do
    local part = one.view.kind == 'pool' and pools or others
    part[#part + 1] = one
  end
  return pools, others
end

local function with_members(view, most, pools, starts)
  for place = 1, most do
    if not all_fit(pools) then
      return
    end
    local members = {}
    for _, one in ipairs(pools) do
      members[one.view.name] = GateView.take(one.view, one.amount)
    end
    starts[place] = new_start(view.heads[place], view.flow, members, '', view.gated)
  end
end

-- One flow of jobs without keyed gates, decided together: this is the path that must be fast.
-- Returns what a round would decide; nil if a job needs to be looked at by itself.
local function one_flow(view, n, free)
  local count = math.min(n, #view.heads)
  if not is_plain(view.shared, view.heads, count) then
    return nil
  end
  local most = view.gated and math.min(count, free) or count
  local pools, others = sorted_out(view.shared)
  for _, one in ipairs(others) do
    most = math.min(most, math.floor(one.view.free / one.amount))
  end
  local decision = new_decision()
  local starts = decision.starts
  if #pools > 0 then
    with_members(view, most, pools, starts)
  else
    for place = 1, most do
      starts[place] = new_start(view.heads[place], view.flow, NO_MEMBERS, '', view.gated)
    end
  end
  for _, one in ipairs(others) do
    GateView.take_many(one.view, one.amount, #starts)
  end
  if #starts == count then
    decision.again = #starts < n and view.more
  elseif not all_fit(view.shared) then
    decision.closed[view.flow] = view.heads[#starts + 1].order
  end
  return decision
end

-- Writes the rank of a flow's head into its place in the merge; whether it changed.
local function rank_anew(round, entry)
  local order = entry.view.heads[entry.index].order
  local level, own = 0, 0
  if round.fairness then
    -- Among those at the level, the one that had less before the level rose goes first; otherwise
    -- the one with the oldest jobs would go first each time.
    own = round.fairness.starts[entry.view.tenant] or 0
    level = math.max(own, round.fairness.level)
  end
  local changed = entry.level ~= level or entry.own ~= own or entry.order ~= order
  entry.priority, entry.level, entry.own = order.priority, level, own
  entry.due_at, entry.seq = order.due_at, order.seq
  entry.order = order
  return changed
end

local function note_parked(round, flow, gate)
  local parked = round.parked[flow]
  if parked == nil then
    parked = {}
    round.parked[flow] = parked
  end
  parked[gate] = true
end

-- Reserves the gates at which a head is short, if it is short of nothing else.
--   short: {view, amount} each.
local function reserve(round, head, short)
  for _, one in ipairs(short) do
    if not GateView.is_short_for(one.view, one.amount) then
      return
    end
  end
  local reserved = round.decision.reserved
  for _, one in ipairs(short) do
    if GateView.reserve(one.view, head.id, head.order, one.amount) then
      reserved[#reserved + 1] = one.view
    end
  end
end

-- The first keyed gate that does not let the head pass, and whether it never will; nil if all do.
local function closed_gate(round, view, head, uses)
  local parked = round.parked[view.flow]
  for _, use in ipairs(uses) do
    local one = round.gate(use)
    if GateView.never_fits(one, use.amount) then
      return use, true
    end
    if not GateView.fits(one, use.amount, head.order) or (parked and parked[use.name]) then
      return use, false
    end
    local before = round.ahead(view.flow, use.name)
    if before and Order.before(before, head.order) then
      return use, false
    end
  end
  return nil
end

local function take(one, amount, members, order)
  local member = GateView.take(one, amount, order)
  if member ~= nil then
    members[one.name] = member
  end
end

local function start(round, view, head, uses, candidate, gated)
  local members = {}
  for _, one in ipairs(view.shared) do
    take(one.view, one.amount, members, head.order)
  end
  for _, use in ipairs(uses) do
    take(round.gate(use), use.amount, members, head.order)
  end
  if gated then
    round.free = round.free - 1
  end
  if round.fairness then
    Fairness.count(round.fairness, view.tenant)
  end
  local starts = round.decision.starts
  starts[#starts + 1] = new_start(head, view.flow, members, candidate, gated)
end

local function park(round, view, head, use, never)
  local parks = round.decision.parks
  parks[#parks + 1] = { head = head, flow = view.flow, gate = use.name, never_fits = never }
  if not never then
    note_parked(round, view.flow, use.name)
    reserve(round, head, { { view = round.gate(use), amount = use.amount } })
  end
  if head.ticket ~= nil then
    round.decision.again = true
  end
end

-- Starts or parks a head; false if its flow must stop here for want of a handler.
local function look_at(round, view, head)
  local gated = view.gated or #head.keyed > 0
  if gated and round.free <= 0 then
    return false
  end
  local blocked, never = nil, true
  for _, candidate in ipairs(#head.candidates > 0 and head.candidates or NO_CANDIDATE) do
    local uses = {}
    for place, use in ipairs(head.keyed) do
      uses[place] = Cascade.in_turn(use, candidate)
    end
    local use, hopeless = closed_gate(round, view, head, uses)
    if use == nil then
      start(round, view, head, uses, candidate, gated)
      return true
    end
    if blocked == nil or (never and not hopeless) then
      blocked, never = use, hopeless
    end
  end
  park(round, view, head, blocked, never)
  return true
end

local function stop(round, view)
  if round.fairness then
    Fairness.stop(round.fairness, view.flow)
  end
end

-- Looks at the best head of all flows, and puts the flow's next into the merge.
local function merge_one(round, queue, entry)
  local view, decision = entry.view, round.decision
  local head, short = view.heads[entry.index], {}
  for _, one in ipairs(view.shared) do
    if not GateView.fits(one.view, one.amount, head.order) then
      short[#short + 1] = one
    end
  end
  if #short > 0 then
    decision.closed[view.flow] = head.order
    reserve(round, head, short)
    stop(round, view)
    return
  end
  if not look_at(round, view, head) then
    stop(round, view)
    return
  end
  if entry.index < #view.heads then
    entry.index = entry.index + 1
    rank_anew(round, entry)
    RankHeap.push(queue, entry)
  elseif not view.more then
    stop(round, view)
  elseif #decision.starts < round.n then
    decision.again = true
  end
end

local function run(round, flows)
  local queue, decision = {}, round.decision
  for place, view in ipairs(flows) do
    if #view.heads > 0 then
      local entry = { view = view, place = place, index = 1 }
      rank_anew(round, entry)
      RankHeap.push(queue, entry)
    end
  end
  while #queue > 0 and #decision.starts < round.n and not decision.again do
    local entry = RankHeap.pop(queue)
    -- Starts of other flows of its tenant may have moved it back since it was put in.
    if rank_anew(round, entry) then
      RankHeap.push(queue, entry)
    else
      merge_one(round, queue, entry)
    end
  end
  return decision
end

-- Decides one round of a claim.
--   flows: of one lane, none empty: {flow, tenant, shared = {view, amount} each, gated, heads, more}.
--   gate: gives the view of a keyed gate by its use; the same view each time.
--   ahead: the order of the first parked job of (flow, gate) that could pass one day, or nil.
--   n: how many jobs may start; free: how many of them may be gated.
--   fairness: of a fair lane; counts the starts; else nil.
-- Returns {starts, parks, again, closed, reserved}: what starts and what parks, in order, whether
-- another round could start more, the flows that a shared gate stops, with the order of the head at
-- which it did, and gates that are reserved for a head of this round. The views have had their
-- permits taken.
function Claiming.decide(flows, gate, ahead, n, free, fairness)
  if #flows == 1 and fairness == nil then
    local decision = one_flow(flows[1], n, free)
    if decision ~= nil then
      return decision
    end
  end
  local round = {
    gate = gate,
    ahead = ahead,
    n = n,
    free = free,
    fairness = fairness,
    decision = new_decision(),
    -- Where this round parked somebody who could pass one day: those behind are held back.
    parked = {},
  }
  return run(round, flows)
end
