-- The gates of one step: their room, and permits taken and returned.
--
-- A book loads each gate once, and is written once, at the end of the step.

-- python: stores.ledger.gatebook.GateBook
-- needs: base.time, tables.gates, tables.starts, tables.lanes, engine.gate_names, rules.pool

local GateBook = {}

-- How long after its window a keyed rate is deleted.
local FORGET_AFTER_MS = 60000

function GateBook.new()
  return {
    -- By name; false for a gate without a row.
    rows = {},
    views = {},
    dirty = {},
    -- By lane; false for unlimited.
    concurrencies = {},
  }
end

-- Facts about a gate

-- Return the declaration of a name, as {spec, override}; nil if there is none.
function GateBook.template(_, name)
  return Gates.templates()[name]
end

-- Return the declared gate and the pool of a resolved name; see `GateNames.place_of`.
function GateBook.place_of(_, gate)
  return GateNames.place_of(Gates.templates(), gate)
end

-- Load gates together, and remember which have no row.
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

-- Return the names of the rows for a gate's view: its own, and those of its members.
function GateBook.row_names(name, spec)
  local names = { name }
  for place, member in ipairs(spec.members) do
    names[place + 1] = Pool.member_gate(name, member[1])
  end
  return names
end

-- Load the gates of these uses, including members of pools.
function GateBook.prefetch_uses(book, uses)
  if #uses == 0 then
    return
  end
  local names = {}
  for _, use in ipairs(uses) do
    local spec = GateBook.spec(book, use.template)
    for _, name in ipairs(spec and GateBook.row_names(use.name, spec) or { use.name }) do
      names[#names + 1] = name
    end
  end
  GateBook.prefetch(book, names)
end

-- Return the gate's row; nil if there is none.
function GateBook.find(book, name)
  if book.rows[name] == nil then
    GateBook.prefetch(book, { name })
  end
  return book.rows[name] or nil
end

-- Return the gate's row for changes, created if missing; it is written at the end of the step.
function GateBook.change(book, name, template, pool)
  local row = GateBook.find(book, name)
  if row == nil then
    row = Gates.new(name, template, pool or '')
    book.rows[name] = row
  end
  book.dirty[name] = true
  return row
end

-- Return the current spec of a declared gate, with an operator's values; nil if it is not declared.
function GateBook.spec(_, template)
  local declared = Gates.templates()[template]
  return declared and Gates.current(declared) or nil
end

-- Remember a lane's row (nil: it has none), so that it is not read again.
function GateBook.learn_lane(book, lane, row)
  book.concurrencies[lane] = row and Lanes.current(row).concurrency or false
end

function GateBook.concurrency(book, lane)
  if book.concurrencies[lane] == nil then
    GateBook.learn_lane(book, lane, Lanes.load({ lane })[lane])
  end
  return book.concurrencies[lane] or nil
end

-- Return the names of the four gates that always apply to a flow's jobs.
function GateBook.implicit_names(flow)
  return { 'all', 'lane:' .. flow.lane, 'tenant:' .. flow.tenant, 'kind:' .. flow.kind }
end

-- Delete starts of a rate that have left its window.
local function trim_row(row, spec)
  row.used = row.used - Starts.trim(row.name, Time.now - (spec.per_ms or 0))
end

-- Delete a keyed rate after its window, because there may be millions.
local function forget_later(row, spec)
  if row.timer_at == nil and not spec.shared then
    row.timer_at = Time.now + (spec.per_ms or 0) + FORGET_AFTER_MS
  end
end

-- Count starts of rates now, and delete those that have left the window.
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

-- Write changed gates.
function GateBook.save(book)
  local rows = {}
  for name in pairs(book.dirty) do
    rows[#rows + 1] = book.rows[name]
    -- An idle row is deleted; the next use reads it again.
    book.rows[name] = nil
  end
  if #rows > 0 then
    Gates.save(rows)
    book.dirty = {}
  end
end
