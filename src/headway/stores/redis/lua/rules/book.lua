-- Written by `make lua` from headway.stores.ledger.gatebook: change that.
-- The gates of one step: their room, permits taken and returned, and the hours computed ahead.
-- needs: base.codec, base.python, base.run, base.time, engine.gate_book, engine.gate_kinds,
-- needs: rules.cascade, rules.slots, tables.starts

local Book = {}

local FOREVER = 253402300800000
local FORGET_AFTER_MS = 60000
local RESERVED_MS = 60000

-- Return the room that a declared gate has in this step.
function Book.view(self, use)
  local known = self.views[use.name]
  if known == nil then
    self.views[use.name] = Book.view_of(self, use.name, use.template)
    known = self.views[use.name]
  end
  return known
end

-- Return the room of an implicit gate; None if it has no limit and is open.
function Book.implicit(self, name, capacity)
  local known = self.views[name]
  if known ~= nil then
    return known
  end
  local row = GateBook.find(self, name)
  if row == nil and capacity == nil then
    return nil
  end
  local most
  if row == nil or row.capacity == nil then
    most = capacity
  else
    most = row.capacity
  end
  local shut = Book.is_shut(self, row)
  if most == nil and not shut then
    return nil
  end
  local value
  if most == nil then
    value = nil
  else
    value = 'slots'
  end
  local view = {
    name = name,
    kind = value,
    template = '',
    most = 4611686018427387904,
    free = 4611686018427387904,
    shut = false,
    members = {},
    strategy = 'least_used',
    last = '',
    counted = 0,
  }
  if most ~= nil then
    view.most = most
    view.free = Slots.room(most, row and row.used or 0)
  end
  Book.close(self, view, row)
  self.views[name] = view
  return view
end

function Book.view_of(self, name, template)
  local spec = GateBook.spec(self, template)
  if spec == nil then
    local message = 'the gate ' .. Run.quoted(name) .. ' is needed, but ' .. Run.quoted(template) .. ' is not declared'
    Run.refuse('InvariantBroken', message)
  end
  local row = GateBook.find(self, name)
  local view = {
    name = name,
    kind = spec.kind,
    template = template,
    most = 4611686018427387904,
    free = 4611686018427387904,
    shut = false,
    members = {},
    strategy = 'least_used',
    last = '',
    counted = 0,
  }
  GateKinds.look(GateKinds.of(spec.kind), self, view, spec, row)
  Book.close(self, view, row)
  local one
  if row ~= nil then
    one = row.reserved
  else
    one = nil
  end
  if one ~= nil and one.until_at > Time.now and one.amount <= view.most then
    view.reserved = one
  end
  return view
end

-- Return whether the gate is closed now, regardless of its limit.
function Book.is_shut(self, row)
  return row ~= nil and row.closed_until ~= nil and row.closed_until > Time.now
end

function Book.close(self, view, row)
  if row == nil or not Book.is_shut(self, row) or row.closed_until == nil then
    return
  end
  local opens_at = view.free ~= 0 and 0 or (view.opens_at or 0)
  view.free, view.shut = 0, true
  if row.closed_until >= FOREVER then
    view.opens_at = nil
  else
    view.opens_at = math.max(row.closed_until, opens_at)
  end
end

-- Return when a gate without room for an amount opens by itself, if that is known.
function Book.opens_at(self, view, template, amount)
  local spec = GateBook.spec(self, template)
  if spec == nil then
    return view.opens_at
  end
  return GateKinds.opens_at(GateKinds.of(spec.kind), self, view, spec, amount)
end

-- Write a gate's reservation, if it is new or half of its time has passed.
function Book.reserve(self, view)
  local one, row, now = view.reserved, GateBook.find(self, view.name), Time.now
  local spec = GateBook.spec(self, view.template)
  if one == nil or spec == nil then
    return nil
  end
  local known
  if row ~= nil then
    known = row.reserved
  else
    known = nil
  end
  local half = math.floor(RESERVED_MS / 2)
  if known == nil or not Book.are_alike(known, one) or known.until_at <= now + half then
    local until_at = now + RESERVED_MS
    known = { job = one.job, order = one.order, amount = one.amount, until_at = until_at }
    row = GateBook.change(self, view.name, view.template)
    row.reserved = known
    if not spec.shared then
      row.timer_at = math.min(row.timer_at ~= nil and row.timer_at ~= 0 and row.timer_at or until_at, until_at)
    end
  end
  view.reserved = known
  return spec.shared and known.until_at - half or nil
end

-- End a gate's reservation for a job, and return whether there was one.
function Book.unreserve(self, gate, job)
  local row = GateBook.find(self, gate)
  if row == nil or row.reserved == nil or row.reserved.job ~= job then
    return false
  end
  GateBook.change(self, gate, row.template).reserved = nil
  Book.forget_view(self, gate)
  return true
end

-- Count permits of a Slots, a pool's member or an implicit gate as taken.
function Book.count_taken(self, name, template, amount, pool)
  local row = GateBook.change(self, name, template, pool)
  row.used = row.used + amount
end

-- Remove a rate's starts that have left the window.
function Book.trim(self, name)
  local row = GateBook.find(self, name)
  local spec
  if row ~= nil then
    spec = GateBook.spec(self, row.template)
  else
    spec = nil
  end
  if row == nil or spec == nil or not GateKinds.of(spec.kind).counts_starts or row.used == 0 then
    return
  end
  row = GateBook.change(self, name, row.template)
  row.used = row.used - Starts.trim(name, Time.now - (spec.per_ms or 0))
  if row.used ~= 0 and not spec.shared and row.timer_at == nil then
    row.timer_at = Time.now + (spec.per_ms or 0) + FORGET_AFTER_MS
  end
  Book.forget_view(self, name)
end

-- Count permits as returned, and drop the cached view.
function Book.give_back(self, gate, amount)
  local row = GateBook.find(self, gate)
  if row == nil or row.used < amount then
    local message = Codec.digits(amount) .. ' permits of ' .. Run.quoted(gate) .. ' are returned, but fewer are out'
    Run.refuse('InvariantBroken', message)
  end
  row.used = row.used - amount
  self.dirty[gate] = true
  Book.forget_view(self, gate)
end

-- Drop the cached views of a gate that changed and of its pool.
function Book.forget_view(self, gate)
  Python.pop(self.views, gate)
  local row = GateBook.find(self, gate)
  if row ~= nil and row.pool ~= '' then
    Python.pop(self.views, row.pool)
  end
end

-- Store the member that was chosen last, if the pool's strategy depends on it.
function Book.remember_member(self, pool, template, member)
  local spec = GateBook.spec(self, template)
  if spec ~= nil and spec.strategy == 'round_robin' then
    GateBook.change(self, pool, template).last = member
  end
end

-- Return whether two reservations differ only in when they end.
function Book.are_alike(one, other)
  local is_of_one = one.job == other.job and one.amount == other.amount
  return is_of_one and Python.same(one.order, other.order)
end

-- Return the use by which a parked job waits at a gate, with its name resolved.
function Book.use_at(head, gate)
  for _, use in ipairs(head.keyed) do
    for _, candidate in ipairs(#head.candidates > 0 and head.candidates or { '' }) do
      local turn = Cascade.in_turn(use, candidate)
      if turn.name == gate then
        return turn
      end
    end
  end
  local message = 'job ' .. head.id .. ' is parked at ' .. Run.quoted(gate) .. ', which it does not use'
  Run.refuse('InvariantBroken', message)
end
