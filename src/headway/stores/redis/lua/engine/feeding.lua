-- Feeding: move parked jobs into their flows when their keyed gate has room.

-- python: stores.ledger.feeding
-- needs: base.codec, base.run, tables.jobs, tables.gates, rules.claiming, rules.gate_view
-- needs: rules.cached_gates, rules.parked

local Feeding = {}

-- Flows read at a time.
local FEED_FLOWS = 256
-- Heads fed per flow and step; the others follow as these leave.
local FEED_HEADS = 100
-- Heads examined per step after their gate's capacity was lowered.
local REFIT = 1000

-- Feed the flows parked at a keyed gate, as far as it has room, in the order of their heads,
-- because a head that reserves makes later ones wait. Return how many jobs were moved.
function Feeding.feed_gate(cache, gate)
  local moved, after = 0, -1
  while true do
    local flows = Jobs.parked_flows(gate, after, FEED_FLOWS)
    if #flows == 0 then
      return moved
    end
    after = flows[#flows]
    local orders = {}
    for _, flow in ipairs(flows) do
      orders[flow] = Jobs.parked_order(gate, flow)
    end
    table.sort(flows, function(a, b)
      return Codec.before(orders[a], orders[b])
    end)
    for _, flow in ipairs(flows) do
      moved = moved + Feeding.feed_flow(cache, gate, flow)
    end
  end
end

-- Mark leading heads that can never pass as unfit. Return whether there were any.
local function mark_unfit(cache, gate, heads)
  local ids, amounts = {}, {}
  for _, head in ipairs(heads) do
    if not Parked.never_fits(cache, head, gate) then
      break
    end
    ids[#ids + 1], amounts[head.id] = head.id, CachedGates.use_at(head, gate).amount
  end
  if #ids == 0 then
    return false
  end
  local rows = {}
  for id, row in pairs(Jobs.load(ids)) do
    row.unfit, row.ticket_amount = true, amounts[id]
    rows[#rows + 1] = row
  end
  Jobs.save(rows)
  return true
end

-- Mark heads that need more than the gate's lowered capacity, so that they block no others. Return
-- up to two heads that are first now.
local function set_aside(cache, gate, flow)
  for _ = 1, REFIT / FEED_HEADS do
    local heads = Jobs.parked_heads(gate, flow, FEED_HEADS)
    if not mark_unfit(cache, gate, heads) then
      return { heads[1], heads[2] }
    end
  end
  Parked.examine_more(cache, gate)
  return Jobs.parked_heads(gate, flow, 2)
end

-- Return the ids and amounts of the first heads that fit beside the tickets before them, and the
-- amount ahead of the next one.
local function fitting(gate, flow, heads, view)
  local tickets = Jobs.tickets(gate, flow)
  local ids, amounts, ahead = {}, {}, 0
  for _, head in ipairs(heads) do
    local amount = CachedGates.use_at(head, gate).amount
    ahead = 0
    for _, ticket in ipairs(tickets) do
      -- A ticket with a reservation is not counted twice.
      local counted = not GateView.is_reserved_for(view, ticket.order)
      if counted and Codec.before(ticket.order, head.order) then
        ahead = ahead + ticket.amount
      end
    end
    if not Claiming.may_feed(view, ahead, amount, head.order) then
      break
    end
    ids[#ids + 1], amounts[#amounts + 1] = head.id, amount
    tickets[#tickets + 1] = { order = head.order, amount = amount }
  end
  return ids, amounts, ahead
end

-- Move a flow's next parked heads into it, each with a ticket. Return how many.
function Feeding.feed_flow(cache, gate, flow)
  -- Two, because the head after the last one fed needs a timer if the gate opens by itself.
  local heads = Jobs.parked_heads(gate, flow, 2)
  if #heads > 0 and Parked.never_fits(cache, heads[1], gate) then
    heads = set_aside(cache, gate, flow)
  end
  if #heads == 0 then
    return 0
  end
  local view = CachedGates.view(cache, CachedGates.use_at(heads[1], gate))
  local total = GateView.total(view)
  if total > 1 then
    heads = Jobs.parked_heads(gate, flow, math.min(total, FEED_HEADS) + 1)
  end
  local ids, amounts, ahead = {}, {}, 0
  if view.free > 0 then
    ids, amounts, ahead = fitting(gate, flow, heads, view)
  end
  if #ids > 0 then
    Jobs.feed(ids, gate, amounts)
    local lane = Jobs.flow(flow).lane
    Parked.from_parked(cache, lane, #ids)
    Run.wake(lane)
  end
  if #heads > #ids then
    Parked.keep_waiting(cache, heads[#ids + 1], gate, ahead)
  end
  return #ids
end

-- Run up to `limit` due timers of keyed gates. Return how many gates there were, and how many jobs
-- were moved.
function Feeding.run_timers(cache, limit)
  local gates, moved = Gates.due_timers(limit), 0
  for _, gate in ipairs(gates) do
    Parked.run_timer(cache, gate)
    moved = moved + Feeding.feed_gate(cache, gate)
  end
  return #gates, moved
end
