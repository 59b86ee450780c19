-- Written by `make lua` from headway.core.claim: change that.
-- The claim rule: which jobs start, and where the others park.
--
-- A store passes the heads of a lane's flows and the gates they need to `decide`, a pure function: the
-- store loads before and writes after, in the same step. Nothing else decides which jobs start, except
-- that PostgreSQL claims from lanes without gates in SQL.
--
-- The rules (each is checked against a brute-force oracle):
--
-- 1. A flow runs while its amounts fit all its shared gates. The first head that does not fit stops
--    the flow.
-- 2. Within a flow, jobs are taken by priority, due time, arrival. Between the flows of a lane, the
--    best head goes first; in a fair lane, among heads of equal priority, the tenant with the fewest
--    starts by weight goes first.
-- 3. A head that fits all its keyed gates starts and takes all its permits; otherwise it takes none.
-- 4. A head that does not fit a keyed gate is parked there, and the next head of its flow is examined.
--    A parked job that could pass later holds back those behind it *at that gate in that flow*.
-- 5. A job with gates starts only if a handler is idle for it; other jobs start up to `n`.
-- 6. A head that is blocked only because it requests several permits and too few are free reserves
--    these gates. Until it starts, jobs that come after it by priority, due time and arrival take
--    nothing that it needs, in any lane. It holds nothing: a job that comes before it takes what is
--    free, so no two jobs wait for each other.
-- 7. If a job with a ticket is parked elsewhere, the round ends, because the store must feed the next
--    job before the flow's order is known.
-- needs: base.python, rules.cascade, rules.fairness, rules.gate_view

local Claiming = {}

local NO_MEMBERS = {}

-- Decide one round of a claim.
function Claiming.decide(flows, gate, ahead, n, free, fairness)
  if #flows == 1 and fairness == nil then
    local decision = Claiming.one_flow(flows[1], n, free)
    if decision ~= nil then
      return decision
    end
  end
  return Claiming.run({
    gate = gate,
    ahead = ahead,
    n = n,
    free = free,
    fairness = fairness,
    decision = { starts = {}, parks = {}, again = false, closed = {}, reserved = {} },
    parked = {},
  }, flows)
end

-- Decide one flow of jobs without keyed gates in bulk: the path that must be fast.
function Claiming.one_flow(view, n, free)
  local heads = Python.slice(view.heads, 1, n)
  if not Claiming.is_plain(view, heads) then
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
  local starts = {}
  if #pools > 0 then
    for _, head in ipairs(Python.slice(heads, 1, most)) do
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
      table.insert(starts, { head = head, flow = flow, members = members, candidate = '', gated = gated })
    end
  else
    starts = {}
    for at, head in ipairs(Python.slice(heads, 1, most)) do
      starts[at] = {
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

-- Return whether all heads have the same needs, and no gate is or could become reserved.
function Claiming.is_plain(view, heads)
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

function Claiming.run(self, flows)
  local queue = {}
  for at, view in ipairs(flows) do
    local place = at - 1
    if #view.heads > 0 then
      queue[#queue + 1] = { Claiming.rank(self, view, 0), place, 0 }
    end
  end
  Python.heapify(queue)
  local decision = self.decision
  while #queue > 0 and #decision.starts < self.n and not decision.again do
    local found = Python.heappop(queue)
    local rank, place, index = found[1], found[2], found[3]
    local view = flows[place + 1]
    local now = Claiming.rank(self, view, index)
    if not Python.alike(now, rank) then
      Python.heappush(queue, { now, place, index })
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
        Claiming.reserve(self, head, short)
        Claiming.stop(self, view)
      else
        if not Claiming.look_at(self, view, head) then
          Claiming.stop(self, view)
        elseif index + 1 < #view.heads then
          Python.heappush(queue, { Claiming.rank(self, view, index + 1), place, index + 1 })
        elseif not view.more then
          Claiming.stop(self, view)
        elseif #decision.starts < self.n then
          decision.again = true
        end
      end
    end
  end
  return decision
end

-- Reserve the gates that have too few permits for a head, if nothing else blocks it.
function Claiming.reserve(self, head, short)
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

function Claiming.stop(self, view)
  if self.fairness then
    Fairness.stop(self.fairness, view.flow)
  end
end

function Claiming.rank(self, view, index)
  local order = view.heads[index + 1].order
  local found = self.fairness and Fairness.rank(self.fairness, view.tenant) or { 0, 0 }
  local level, own = found[1], found[2]
  return { order.priority, level, own, order.due_at, order.seq }
end

-- Start or park a head; return False if its flow must stop because no handler is free.
function Claiming.look_at(self, view, head)
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
    local closed = Claiming.closed_gate(self, view, head, uses)
    if closed == nil then
      Claiming.start(self, view, head, uses, candidate, gated)
      return true
    end
    local gate, hopeless = closed[1], closed[2]
    if blocked == nil or never and not hopeless then
      blocked, never = gate, hopeless
    end
  end
  table.insert(self.decision.parks, { head = head, flow = view.flow, gate = blocked.name, never_fits = never })
  if not never then
    self.parked[view.flow .. '\0' .. blocked.name] = true
    Claiming.reserve(self, head, { { self.gate(blocked), blocked.amount } })
  end
  if head.ticket ~= nil then
    self.decision.again = true
  end
  return true
end

-- Return the first keyed gate that the head cannot pass, and whether it never will.
function Claiming.closed_gate(self, view, head, uses)
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
    if before ~= nil and Python.less({ before.priority, before.due_at, before.seq }, { head.order.priority, head.order.due_at, head.order.seq }) then
      return { use, false }
    end
  end
  return nil
end

function Claiming.start(self, view, head, uses, candidate, gated)
  local members = {}
  for _, each in ipairs(view.shared) do
    local one, amount = each[1], each[2]
    Claiming.take(one, amount, members, head.order)
  end
  for _, use in ipairs(uses) do
    Claiming.take(self.gate(use), use.amount, members, head.order)
  end
  if gated then
    self.free = self.free - 1
  end
  if self.fairness then
    Fairness.count(self.fairness, view.tenant)
  end
  table.insert(self.decision.starts, {
    head = head,
    flow = view.flow,
    members = members,
    candidate = candidate,
    gated = gated,
  })
end

function Claiming.take(one, amount, members, order)
  local member = GateView.take(one, amount, order)
  if member ~= nil then
    members[one.name] = member
  end
end

-- Return whether a parked head may be moved into its flow with a ticket.
--
-- A head that does not fit in addition to the tickets before it stays parked, and so do those
-- behind it. A move is wasted only if another flow was faster, or if a pool has enough room but
-- not in one member.
function Claiming.may_feed(gate, ahead, amount, order)
  return GateView.fits(gate, amount, order) and ahead + amount <= GateView.total(gate, order)
end
