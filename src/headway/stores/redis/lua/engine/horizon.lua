-- Hours as absolute intervals, known at least two weeks ahead. Lua has no time zones: the client
-- computes the intervals on request, and sends its request again with them.
-- needs: rules.cached_gates, base.run, base.time, tables.gates, engine.gate_cache

local Horizon = {}

local given = {}

-- Read the intervals in a request: `opens`, {opens, horizon_at} by the gate's name.
function Horizon.begin(request)
  given = request.opens or {}
end

-- Request from the client, together, the intervals that these gates need and the request lacks.
-- Must run before any write that cannot be undone.
--   gates: {name, template, zone} each.
function Horizon.require(cache, gates)
  local missing, asked = {}, {}
  for _, gate in ipairs(gates) do
    local spec = GateCache.spec(cache, gate.template)
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
function Horizon.is_new(cache, use)
  if use.zone == nil then
    return false
  end
  local row = GateCache.find(cache, use.name)
  return row == nil or row.horizon_at == nil
end

-- Create the row of an Hours at its first use.
function Horizon.ensure_hours(cache, use)
  if Horizon.is_new(cache, use) then
    Horizon.extend(cache, use.name, use.template, use.zone)
  end
end

-- Store the intervals of an Hours from now to its horizon, as currently declared.
function Horizon.extend(cache, name, template, zone)
  local spec = GateCache.spec(cache, template)
  if spec == nil or spec.hours == nil then
    return
  end
  Horizon.require(cache, { { name = name, template = template, zone = zone } })
  local row = GateCache.change(cache, name, template)
  row.zone = zone
  row.opens = given[name].opens
  row.horizon_at = given[name].horizon_at
  CachedGates.forget_view(cache, name)
end

-- Request the intervals of hours whose horizon is near, before anything is written.
function Horizon.ask_short(limit)
  local rows = Gates.short_horizons(Time.now + CachedGates.EXTEND_BELOW_MS, limit)
  Horizon.require(GateCache.new(), rows)
end

-- Extend hours whose horizon is near. Return how many.
function Horizon.extend_short(cache, limit)
  local rows = Gates.short_horizons(Time.now + CachedGates.EXTEND_BELOW_MS, limit)
  for _, row in ipairs(rows) do
    Horizon.extend(cache, row.name, row.template, row.zone or 'UTC')
  end
  return #rows
end
