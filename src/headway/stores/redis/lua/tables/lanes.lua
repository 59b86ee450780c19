-- The table of lanes, each created with its first job, and their fairness.
-- python: stores.ledger.tables.LaneTable, stores.ledger.rows.LaneRow.current
-- needs: base.keys, base.codec, base.write

local Lanes = {}

-- Return a lane's current spec: an operator's version, the declared one, or the defaults.
function Lanes.current(row)
  return row.override or row.spec or { name = row.name, weights = {} }
end

local function encode(row)
  return cmsgpack.pack({ spec = row.spec, override = row.override, level = row.level })
end

-- Return copies of lanes' rows, by name, as {name, spec, override, level}.
function Lanes.load(names)
  local found = {}
  for place, kept in ipairs(Write.read(Keys.lanes, names)) do
    if kept then
      local row = cmsgpack.unpack(kept)
      row.name = names[place]
      found[row.name] = row
    end
  end
  return found
end

-- Create missing lanes.
function Lanes.ensure(names)
  local values = {}
  for place, kept in ipairs(Write.read(Keys.lanes, names)) do
    if not kept then
      values[#values + 1] = names[place]
      values[#values + 1] = encode({ level = 0 })
    end
  end
  Write.hset(Keys.lanes, values)
end

-- Write a lane.
function Lanes.save(row)
  Write.put(Keys.lanes, row.name, encode(row))
end

-- Return the names of all lanes, in any order: the client sorts faster, and holds up no other call.
function Lanes.names()
  return redis.call('HKEYS', Keys.lanes)
end

-- Return the fields of tenants in a lane.
local function fields_of(lane, tenants)
  local prefix, fields = Codec.name(lane), {}
  for place, tenant in ipairs(tenants) do
    fields[place] = prefix .. tenant
  end
  return fields
end

-- Return virtual starts by tenant, for those that have any.
function Lanes.tenant_starts(lane, tenants)
  local starts = {}
  for place, number in ipairs(Write.read(Keys.tenants, fields_of(lane, tenants))) do
    if number then
      starts[tenants[place]] = tonumber(number)
    end
  end
  return starts
end

-- Return virtual starts of all tenants of a lane, by tenant.
function Lanes.all_tenant_starts(lane)
  local prefix, starts = Codec.name(lane), {}
  local low, high = Codec.prefix(prefix)
  local fields = redis.call('ZRANGEBYLEX', Keys.tenant_names, low, high)
  for place, number in ipairs(Write.read(Keys.tenants, fields)) do
    starts[string.sub(fields[place], #prefix + 1)] = tonumber(number)
  end
  return starts
end

-- Write virtual starts.
--   starts: numbers by tenant.
function Lanes.save_tenant_starts(lane, starts)
  local prefix, fields, values, names = Codec.name(lane), {}, {}, {}
  for tenant, number in pairs(starts) do
    fields[#fields + 1] = prefix .. tenant
    values[#values + 1], values[#values + 2] = prefix .. tenant, number
  end
  for place, known in ipairs(Write.read(Keys.tenants, fields)) do
    if not known then
      names[#names + 1], names[#names + 2] = 0, fields[place]
    end
  end
  Write.hset(Keys.tenants, values)
  Write.zadd(Keys.tenant_names, names)
end
