-- The gates of one step: their room, and permits taken and returned.
--
-- A cache loads each gate once, and is written once, at the end of the step.

-- python: stores.ledger.gate_cache.GateCache, stores.ledger.gatekinds.GateRows
-- needs: tables.gates, tables.lanes, engine.gate_names, rules.pool

local GateCache = {}

function GateCache.new()
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
function GateCache.template(_, name)
  return Gates.templates()[name]
end

-- Return the declared gate and the pool of a resolved name; see `GateNames.place_of`.
function GateCache.place_of(_, gate)
  return GateNames.place_of(Gates.templates(), gate)
end

-- Load gates together, and remember which have no row.
function GateCache.prefetch(cache, names)
  local wanted = {}
  for _, name in ipairs(names) do
    if cache.rows[name] == nil then
      cache.rows[name] = false
      wanted[#wanted + 1] = name
    end
  end
  if #wanted > 0 then
    for name, row in pairs(Gates.load(wanted)) do
      cache.rows[name] = row
    end
  end
end

-- Load the keyed gates whose timer is due, and return their names, earliest first.
function GateCache.due_gates(cache, limit)
  local gates = Gates.due_timers(limit)
  GateCache.prefetch(cache, gates)
  return gates
end

-- Return the names of the rows for a gate's view: its own, and those of its members.
function GateCache.row_names(name, spec)
  local names = { name }
  for place, member in ipairs(spec.members) do
    names[place + 1] = Pool.member_gate(name, member[1])
  end
  return names
end

-- Load the gates of these uses, including members of pools.
function GateCache.prefetch_uses(cache, uses)
  if #uses == 0 then
    return
  end
  local names = {}
  for _, use in ipairs(uses) do
    local spec = GateCache.spec(cache, use.template)
    for _, name in ipairs(spec and GateCache.row_names(use.name, spec) or { use.name }) do
      names[#names + 1] = name
    end
  end
  GateCache.prefetch(cache, names)
end

-- Return the gate's row; nil if there is none.
function GateCache.find(cache, name)
  if cache.rows[name] == nil then
    GateCache.prefetch(cache, { name })
  end
  return cache.rows[name] or nil
end

-- Return the gate's row for changes, created if missing; it is written at the end of the step.
function GateCache.change(cache, name, template, pool)
  local row = GateCache.find(cache, name)
  if row == nil then
    row = Gates.new(name, template, pool or '')
    cache.rows[name] = row
  end
  cache.dirty[name] = true
  return row
end

-- Return the current spec of a declared gate, with an operator's values; nil if it is not declared.
function GateCache.spec(_, template)
  local declared = Gates.templates()[template]
  return declared and Gates.current(declared) or nil
end

-- Remember a lane's row (nil: it has none), so that it is not read again.
function GateCache.learn_lane(cache, lane, row)
  cache.concurrencies[lane] = row and Lanes.current(row).concurrency or false
end

function GateCache.concurrency(cache, lane)
  if cache.concurrencies[lane] == nil then
    GateCache.learn_lane(cache, lane, Lanes.load({ lane })[lane])
  end
  return cache.concurrencies[lane] or nil
end

-- Write changed gates.
function GateCache.save(cache)
  local rows = {}
  for name in pairs(cache.dirty) do
    rows[#rows + 1] = cache.rows[name]
    -- An idle row is deleted; the next use reads it again.
    cache.rows[name] = nil
  end
  if #rows > 0 then
    Gates.save(rows)
    cache.dirty = {}
  end
end
