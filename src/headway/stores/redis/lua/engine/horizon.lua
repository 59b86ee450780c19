-- Hours as absolute intervals, known at least two weeks ahead. Lua has no time zones: the client
-- computes the intervals on request, and sends its request again with them.
-- needs: rules.book, base.run, base.time, tables.gates, engine.gate_book

local Horizon = {}

-- A chore extends hours that are known for less than this.
local EXTEND_BELOW_MS = 15 * 86400000

local given = {}

-- Read the intervals in a request: `opens`, {opens, horizon_at} by the gate's name.
function Horizon.begin(request)
  given = request.opens or {}
end

-- Request from the client, together, the intervals that these gates need and the request lacks.
-- Must run before any write that cannot be undone.
--   gates: {name, template, zone} each.
function Horizon.require(book, gates)
  local missing, asked = {}, {}
  for _, gate in ipairs(gates) do
    local spec = GateBook.spec(book, gate.template)
    if spec and spec.hours and not given[gate.name] and not asked[gate.name] then
      asked[gate.name] = true
      missing[#missing + 1] = {
        name = gate.name,
        template = gate.template,
        zone = gate.zone or 'UTC',
        spec = spec.hours,
      }
    end
  end
  if #missing > 0 then
    Run.need(missing)
  end
end

-- Return whether a use is the first of an Hours.
function Horizon.is_new(book, use)
  if use.zone == nil then
    return false
  end
  local row = GateBook.find(book, use.name)
  return row == nil or row.horizon_at == nil
end

-- Create the row of an Hours at its first use.
function Horizon.ensure_hours(book, use)
  if Horizon.is_new(book, use) then
    Horizon.extend(book, use.name, use.template, use.zone)
  end
end

-- Store the intervals of an Hours from now to its horizon, as currently declared.
function Horizon.extend(book, name, template, zone)
  local spec = GateBook.spec(book, template)
  if spec == nil or spec.hours == nil then
    return
  end
  Horizon.require(book, { { name = name, template = template, zone = zone } })
  local row = GateBook.change(book, name, template)
  row.zone = zone
  row.opens = given[name].opens
  row.horizon_at = given[name].horizon_at
  Book.forget_view(book, name)
end

-- Request the intervals of hours whose horizon is near, before anything is written.
function Horizon.ask_short(limit)
  local rows = Gates.short_horizons(Time.now + EXTEND_BELOW_MS, limit)
  Horizon.require(GateBook.new(), rows)
end

-- Extend hours whose horizon is near. Return how many.
function Horizon.extend_short(book, limit)
  local rows = Gates.short_horizons(Time.now + EXTEND_BELOW_MS, limit)
  for _, row in ipairs(rows) do
    Horizon.extend(book, row.name, row.template, row.zone or 'UTC')
  end
  return #rows
end
