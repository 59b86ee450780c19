-- The gates of one step: what room they have, what is taken and given back.
--
-- A book loads each gate once and is written once, at the end of the step.
-- needs: base.run, base.codec, base.time, tables.gates, tables.starts, tables.lanes
-- needs: rules.cascade, rules.gate_view, rules.slots, engine.gate_kinds, engine.gate_views

local GateBook = {}

-- How long after its window a keyed rate is forgotten.
local FORGET_AFTER_MS = 60000

function GateBook.new()
  return {
    -- By name; false for a gate that is known to have no row.
    rows = {},
    views = {},
    dirty = {},
    -- By lane; false for unlimited.
    concurrencies = {},
  }
end

-- What is known of a gate

-- Loads gates in one go; those without a row are remembered as such.
function GateBook.prefetch(book, names)
  local wanted = {}
  for _, name in ipairs(names) do
    if book.rows[name] == nil then
      book.rows[name] = false
      wanted[#wanted + 1] = name
    end
  end
  if #wanted > 0 then
    for name, row in pairs(Gates.load(wanted)) do
      book.rows[name] = row
    end
  end
end

-- Loads the gates of these uses, members of pools among them.
function GateBook.prefetch_uses(book, uses)
  if #uses == 0 then
    return
  end
  local names = {}
  for _, use in ipairs(uses) do
    local spec = GateBook.spec(book, use.template)
    for _, name in ipairs(spec and GateKinds.row_names(use.name, spec) or { use.name }) do
      names[#names + 1] = name
    end
  end
  GateBook.prefetch(book, names)
end

-- The gate's row; nil if there is none.
function GateBook.find(book, name)
  if book.rows[name] == nil then
    GateBook.prefetch(book, { name })
  end
  return book.rows[name] or nil
end

-- The gate's row, made if need be, to be changed; written at the end of the step.
function GateBook.change(book, name, template, pool)
  local row = GateBook.find(book, name)
  if row == nil then
    row = Gates.new(name, template, pool or '')
    book.rows[name] = row
  end
  book.dirty[name] = true
  return row
end

-- What is declared under a name, an operator's values applied; nil if nothing is.
function GateBook.spec(_, template)
  local declared = Gates.templates()[template]
  return declared and Gates.current(declared) or nil
end

-- Views

-- The room that a declared gate has in this step.
function GateBook.view(book, use)
  local name = use.name
  local known = book.views[name]
  if known ~= nil then
    return known
  end
  local spec = GateBook.spec(book, use.template)
  if spec == nil then
    local message = "the gate '" .. name .. "' is asked for, but '" .. use.template
    Run.refuse('InvariantBroken', message .. "' is not declared")
  end
  local view = GateViews.view(name, spec, GateBook.find(book, name), function(other)
    return GateBook.find(book, other)
  end)
  book.views[name] = view
  return view
end

-- The room of an implicit gate (`all`, `lane:…`, `tenant:…`, `kind:…`); nil while it is undefined,
-- and so open.
--   capacity: of a lane's own concurrency; an operator's value for the gate wins.
function GateBook.implicit(book, name, capacity)
  local known = book.views[name]
  if known ~= nil then
    return known
  end
  local row = GateBook.find(book, name)
  if row == nil and capacity == nil then
    return nil
  end
  local most = capacity
  if row ~= nil and row.capacity ~= nil then
    most = row.capacity
  end
  if most == nil and not GateKinds.is_shut(row) then
    return nil
  end
  local view = GateViews.new(name, most ~= nil and 'slots' or nil)
  if most ~= nil then
    view.most = most
    view.free = Slots.room(most, GateKinds.used_of(row))
  end
  GateViews.close(view, row)
  book.views[name] = view
  return view
end

-- Takes a lane's row (nil: it has none), which need not be read again.
function GateBook.learn_lane(book, lane, row)
  book.concurrencies[lane] = row and Lanes.current(row).concurrency or false
end

local function concurrency_of(book, lane)
  if book.concurrencies[lane] == nil then
    GateBook.learn_lane(book, lane, Lanes.load({ lane })[lane])
  end
  return book.concurrencies[lane] or nil
end

-- The names of the four gates that always apply to a flow's jobs.
function GateBook.implicit_names(flow)
  return { 'all', 'lane:' .. flow.lane, 'tenant:' .. flow.tenant, 'kind:' .. flow.kind }
end

-- Those of the four gates that always apply to a flow's jobs that are defined.
function GateBook.implicit_of(book, flow)
  local views = {}
  for place, name in ipairs(GateBook.implicit_names(flow)) do
    local capacity = place == 2 and concurrency_of(book, flow.lane) or nil
    views[#views + 1] = GateBook.implicit(book, name, capacity)
  end
  return views
end

-- When a gate that does not fit an amount now opens by itself, if that is known.
function GateBook.opens_at(book, view, template, amount)
  local spec = GateBook.spec(book, template)
  local opens_at = spec and GateKinds.of(spec.kind).opens_at
  if not opens_at then
    return view.opens_at
  end
  return opens_at(view, spec, GateBook.find(book, view.name), amount)
end

-- Reserving

-- Whether two reservations are the same but for their end.
local function alike(a, b)
  return a.job == b.job and a.amount == b.amount and Codec.same_order(a.order, b.order)
end

-- Writes for whom a gate is reserved, if that is new or half of its time is over. Returns when a
-- claim must renew it; nil where the gate's timer does, because jobs park there.
function GateBook.reserve(book, view)
  local one, spec = view.reserved, GateBook.spec(book, view.template)
  if one == nil or spec == nil then
    return nil
  end
  local row, half = GateBook.find(book, view.name), GateView.RESERVED_MS / 2
  local known = row and row.reserved
  if not known or not alike(known, one) or known.until_at <= Time.now + half then
    local until_at = Time.now + GateView.RESERVED_MS
    known = { job = one.job, order = one.order, amount = one.amount, until_at = until_at }
    row = GateBook.change(book, view.name, view.template)
    row.reserved = known
    if not spec.shared then
      row.timer_at = math.min(row.timer_at or until_at, until_at)
    end
  end
  view.reserved = known
  return spec.shared and known.until_at - half or nil
end

-- Ends a gate's reservation for a job; whether there was one.
function GateBook.unreserve(book, gate, job)
  local row = GateBook.find(book, gate)
  if row == nil or row.reserved == nil or row.reserved.job ~= job then
    return false
  end
  GateBook.change(book, gate, row.template).reserved = nil
  GateBook.forget_view(book, gate)
  return true
end

-- Taking and giving back

-- Counts permits of a Slots, a member or an implicit gate as out.
function GateBook.use_up(book, name, template, amount, pool)
  local row = GateBook.change(book, name, template, pool)
  row.used = row.used + amount
end

-- Forgets the starts of a rate that no window needs any more.
local function trim_row(row, spec)
  row.used = row.used - Starts.trim(row.name, Time.now - (spec.per_ms or 0))
end

-- There may be millions of keyed rates: each is forgotten when its window is over.
local function forget_later(row, spec)
  if row.timer_at == nil and not spec.shared then
    row.timer_at = Time.now + (spec.per_ms or 0) + FORGET_AFTER_MS
  end
end

-- Counts starts of rates now, and forgets those that no window needs any more.
--   counts: {gate, template, number} each.
function GateBook.count_starts(book, counts)
  local numbers = {}
  for _, one in ipairs(counts) do
    local row = GateBook.change(book, one.gate, one.template)
    local spec = GateBook.spec(book, one.template)
    if spec ~= nil then
      if row.used > 0 then
        trim_row(row, spec)
      end
      forget_later(row, spec)
    end
    row.used = row.used + one.number
    numbers[one.gate] = one.number
  end
  Starts.add(numbers)
end

-- Forgets a rate's starts that no window needs any more.
function GateBook.trim(book, name)
  local row = GateBook.find(book, name)
  local spec = row and GateBook.spec(book, row.template)
  if not spec or not GateKinds.of(spec.kind).counts_starts or row.used == 0 then
    return
  end
  row = GateBook.change(book, name, row.template)
  trim_row(row, spec)
  if row.used > 0 then
    forget_later(row, spec)
  end
  GateBook.forget_view(book, name)
end

-- Counts permits as back; the view is read anew when it is next looked at. Refuses with
-- InvariantBroken if fewer are out.
function GateBook.give_back(book, gate, amount)
  local row = GateBook.find(book, gate)
  if row == nil or row.used < amount then
    local message = string.format("%.0f permits of '%s' come back, but fewer are out", amount, gate)
    Run.refuse('InvariantBroken', message)
  end
  row.used = row.used - amount
  book.dirty[gate] = true
  GateBook.forget_view(book, gate)
end

-- A gate changed under its view, and under its pool's.
function GateBook.forget_view(book, gate)
  book.views[gate] = nil
  local row = GateBook.find(book, gate)
  if row ~= nil and row.pool ~= '' then
    book.views[row.pool] = nil
  end
end

-- Keeps which member was chosen last, where the next choice depends on it.
function GateBook.remember_member(book, pool, template, member)
  local spec = GateBook.spec(book, template)
  if spec ~= nil and spec.strategy == 'round_robin' then
    GateBook.change(book, pool, template).last = member
  end
end

-- Writes what changed.
function GateBook.save(book)
  local rows = {}
  for name in pairs(book.dirty) do
    rows[#rows + 1] = book.rows[name]
    -- An idle row is gone now; what is asked for next is read again.
    book.rows[name] = nil
  end
  if #rows > 0 then
    Gates.save(rows)
    book.dirty = {}
  end
end

-- The use by which a parked job waits at a gate, its name resolved. Refuses with InvariantBroken if
-- it asks for no such gate.
--   head: the job; gate: where it is parked, or whose ticket it carries.
function GateBook.use_at(head, gate)
  local candidates = #head.candidates > 0 and head.candidates or { '' }
  for _, use in ipairs(head.keyed) do
    for _, candidate in ipairs(candidates) do
      local turn = Cascade.in_turn(use, candidate)
      if turn.name == gate then
        return turn
      end
    end
  end
  local message = 'job ' .. head.id .. " is parked at '" .. gate .. "'"
  Run.refuse('InvariantBroken', message .. ', which it does not ask for')
end
