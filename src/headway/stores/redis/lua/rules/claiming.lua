-- Written by `make lua` from headway.core.claim: change that.
-- The one place where a claim is decided: which jobs start, and where the others park.
--
-- A store hands over the heads of a lane's flows and the gates they need; `decide` says what happens.
-- It is pure: the store loads before and writes after, in the same step.
--
-- The rules (each is checked against a brute-force oracle):
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
-- needs: base.python, rules.cascade, rules.fairness, rules.gate_view

local Claiming = {}

local NO_MEMBERS = {}

local function _less_of_7(a, b)
  if a[1][1] ~= b[1][1] then
    return a[1][1] < b[1][1]
  end
  if a[1][2] ~= b[1][2] then
    return a[1][2] < b[1][2]
  end
  if a[1][3] ~= b[1][3] then
    return a[1][3] < b[1][3]
  end
  if a[1][4] ~= b[1][4] then
    return a[1][4] < b[1][4]
  end
  if a[1][5] ~= b[1][5] then
    return a[1][5] < b[1][5]
  end
  if a[2] ~= b[2] then
    return a[2] < b[2]
  end
  return a[3] < b[3]
end

local function _same_of_5(a, b)
  return a[1] == b[1] and a[2] == b[2] and a[3] == b[3] and a[4] == b[4] and a[5] == b[5]
end

local function _less_order(a, b)
  if a.priority ~= b.priority then
    return a.priority < b.priority
  end
  if a.due_at ~= b.due_at then
    return a.due_at < b.due_at
  end
  return a.seq < b.seq
end

local _one_flow
local _is_plain
local _Round_run
local _Round_reserve
local _Round_stop
local _Round_rank
local _Round_look_at
local _Round_closed_gate
local _Round_start
local _take

-- Decide one round of a claim.
function Claiming.decide(flows, gate, ahead, n, free, fairness)
  if #flows == 1 and fairness == nil then
    local decision = _one_flow(flows[1], n, free)
    if decision ~= nil then
      return decision
    end
  end
  return _Round_run({
    gate = gate,
    ahead = ahead,
    n = n,
    free = free,
    fairness = fairness,
    decision = { starts = {}, parks = {}, again = false, closed = {}, reserved = {} },
    parked = {},
  }, flows)
end

-- One flow of jobs without keyed gates, decided together: this is the path that must be fast.
function _one_flow(view, n, free)
  local heads = Python.slice(view.heads, 1, n)
  if not _is_plain(view, heads) then
    return nil
  end
  local most = view.gated and math.min(#heads, free) or #heads
  local pools = {}
  for _, each in ipairs(view.shared) do
    local one, amount = each[1], each[2]
    if #one.members > 0 then
      pools[#pools + 1] = { one, amount }
    end
  end
  local others = {}
  for _, each2 in ipairs(view.shared) do
    local one, amount = each2[1], each2[2]
    if #one.members == 0 then
      others[#others + 1] = { one, amount }
    end
  end
  for _, each3 in ipairs(others) do
    local one, amount = each3[1], each3[2]
    most = math.min(most, math.floor(one.free / amount))
  end
  local flow, gated = view.flow, view.gated
  local starts
  if #pools > 0 then
    starts = {}
    for at = 1, math.min(most, #heads) do
      local head = heads[at]
      local are_all = true
      for _, each4 in ipairs(pools) do
        local one, amount = each4[1], each4[2]
        if not GateView.fits(one, amount) then
          are_all = false
          break
        end
      end
      if not are_all then
        break
      end
      local members = {}
      for _, each5 in ipairs(pools) do
        local one, amount = each5[1], each5[2]
        members[one.name] = GateView.take(one, amount) or ''
      end
      starts[#starts + 1] = { head = head, flow = flow, members = members, candidate = '', gated = gated }
    end
  else
    starts = {}
    for at2 = 1, math.min(most, #heads) do
      local head = heads[at2]
      starts[at2] = {
        head = head,
        flow = flow,
        members = NO_MEMBERS,
        candidate = '',
        gated = gated,
      }
    end
  end
  for _, each6 in ipairs(others) do
    local one, amount = each6[1], each6[2]
    GateView.take_many(one, amount, #starts)
  end
  local decision = { starts = starts, parks = {}, again = false, closed = {}, reserved = {} }
  if #starts == #heads then
    decision.again = #starts < n and view.more
  else
    local are_all3 = true
    for _, each8 in ipairs(view.shared) do
      local one, amount = each8[1], each8[2]
      if not GateView.fits(one, amount) then
        are_all3 = false
        break
      end
    end
    if not are_all3 then
      decision.closed[flow] = heads[#starts + 1].order
    end
  end
  return decision
end

-- Return whether all heads need the same and nothing is, or would have to be, reserved.
function _is_plain(view, heads)
  for _, each in ipairs(view.shared) do
    local one, amount = each[1], each[2]
    if amount > 1 or one.reserved then
      return false
    end
  end
  for _, head in ipairs(heads) do
    if #head.keyed > 0 or head.ticket ~= nil or #head.candidates > 0 then
      return false
    end
  end
  return true
end

function _Round_run(self, flows)
  local place, view
  local queue = {}
  for at, view in ipairs(flows) do
    local place = at - 1
    if #view.heads > 0 then
      queue[#queue + 1] = { _Round_rank(self, view, 0), place, 0 }
    end
  end
  Python.heapify(queue, _less_of_7)
  local decision = self.decision
  while #queue > 0 and #decision.starts < self.n and not decision.again do
    local found = Python.heappop(queue, _less_of_7)
    local index, rank
    rank, place, index = found[1], found[2], found[3]
    view = flows[place + 1]
    local now = _Round_rank(self, view, index)
    if not _same_of_5(now, rank) then
      Python.heappush(queue, { now, place, index }, _less_of_7)
    else
      local head = view.heads[index + 1]
      local order = head.order
      local short = {}
      for _, each in ipairs(view.shared) do
        if not GateView.fits(each[1], each[2], order) then
          short[#short + 1] = each
        end
      end
      if #short > 0 then
        decision.closed[view.flow] = order
        _Round_reserve(self, head, short)
        _Round_stop(self, view)
      else
        if not _Round_look_at(self, view, head) then
          _Round_stop(self, view)
        elseif index + 1 < #view.heads then
          Python.heappush(queue, { _Round_rank(self, view, index + 1), place, index + 1 }, _less_of_7)
        elseif not view.more then
          _Round_stop(self, view)
        elseif #decision.starts < self.n then
          decision.again = true
        end
      end
    end
  end
  return decision
end

-- Reserve the gates at which a head is short, if it is short of nothing else.
function _Round_reserve(self, head, short)
  local are_all = true
  for _, each in ipairs(short) do
    local one, amount = each[1], each[2]
    if not GateView.is_short_for(one, amount) then
      are_all = false
      break
    end
  end
  if not are_all then
    return
  end
  for _, each2 in ipairs(short) do
    local one, amount = each2[1], each2[2]
    if GateView.reserve(one, head.id, head.order, amount) then
      self.decision.reserved[one.name] = one
    end
  end
end

function _Round_stop(self, view)
  if self.fairness then
    Fairness.stop(self.fairness, view.flow)
  end
end

function _Round_rank(self, view, index)
  local order = view.heads[index + 1].order
  local found = self.fairness and Fairness.rank(self.fairness, view.tenant) or { 0, 0 }
  local level, own = found[1], found[2]
  return { order.priority, level, own, order.due_at, order.seq }
end

-- Start or park a head; False if its flow must stop here for want of a handler.
function _Round_look_at(self, view, head)
  local gated = view.gated or #head.keyed > 0
  if gated and self.free <= 0 then
    return false
  end
  local blocked
  local never = true
  for _, candidate in ipairs(#head.candidates > 0 and head.candidates or { '' }) do
    local uses = {}
    for at, use in ipairs(head.keyed) do
      uses[at] = Cascade.in_turn(use, candidate)
    end
    local closed = _Round_closed_gate(self, view, head, uses)
    if closed == nil then
      _Round_start(self, view, head, uses, candidate, gated)
      return true
    end
    local gate, hopeless = closed[1], closed[2]
    if blocked == nil or never and not hopeless then
      blocked, never = gate, hopeless
    end
  end
  local list2 = self.decision.parks
  list2[#list2 + 1] = { head = head, flow = view.flow, gate = blocked.name, never_fits = never }
  if not never then
    self.parked[view.flow .. '\0' .. blocked.name] = true
    _Round_reserve(self, head, { { self.gate(blocked), blocked.amount } })
  end
  if head.ticket ~= nil then
    self.decision.again = true
  end
  return true
end

-- The first keyed gate that does not let the head pass, and whether it never will.
function _Round_closed_gate(self, view, head, uses)
  for _, use in ipairs(uses) do
    local one = self.gate(use)
    if GateView.never_fits(one, use.amount) then
      return { use, true }
    end
    if not GateView.fits(one, use.amount, head.order) then
      return { use, false }
    end
    if self.parked[view.flow .. '\0' .. use.name] ~= nil then
      return { use, false }
    end
    local before = self.ahead(view.flow, use.name)
    if before ~= nil and _less_order(before, head.order) then
      return { use, false }
    end
  end
  return nil
end

function _Round_start(self, view, head, uses, candidate, gated)
  local members = {}
  for _, each in ipairs(view.shared) do
    local one, amount = each[1], each[2]
    _take(one, amount, members, head.order)
  end
  for _, use in ipairs(uses) do
    _take(self.gate(use), use.amount, members, head.order)
  end
  if gated then
    self.free = self.free - 1
  end
  if self.fairness then
    Fairness.count(self.fairness, view.tenant)
  end
  local list = self.decision.starts
  list[#list + 1] = {
    head = head,
    flow = view.flow,
    members = members,
    candidate = candidate,
    gated = gated,
  }
end

function _take(one, amount, members, order)
  local member = GateView.take(one, amount, order)
  if member ~= nil then
    members[one.name] = member
  end
end

-- Return whether a parked head may be moved into its flow with a ticket.
--
-- A head that does not fit beside the tickets before it stays, and those behind it with it. A move
-- is wasted only if another flow was faster, or if a pool has enough room but not in one member.
function Claiming.may_feed(gate, ahead, amount, order)
  return GateView.fits(gate, amount, order) and ahead + amount <= GateView.total(gate, order)
end
