-- The table of gates: declarations, and rows of gates with state.
-- python: stores.ledger.tables.GateTable, stores.ledger.gaterows.TemplateRow.current
-- needs: base.keys, base.codec, base.write, base.time, rules.gate_row

local Gates = {}

local templates = nil

-- Return all declared gates by name, as {spec, override}; read once per script.
function Gates.templates()
  if templates == nil then
    templates = {}
    local kept = redis.call('HGETALL', Keys.templates)
    for place = 1, #kept, 2 do
      templates[kept[place]] = cmsgpack.unpack(kept[place + 1])
    end
  end
  return templates
end

-- Return the current spec of a declared gate: an operator's version, or the declared one.
function Gates.current(row)
  return row.override or row.spec
end

-- Write a declared gate.
function Gates.save_template(row)
  Gates.templates()[row.spec.name] = row
  local kept = { spec = row.spec, override = row.override }
  Write.put(Keys.templates, row.spec.name, cmsgpack.pack(kept))
end

-- Create a row of a gate without state.
function Gates.new(name, template, pool)
  return {
    name = name,
    template = template,
    pool = pool or '',
    used = 0,
    closed_by = '',
    closed_reason = '',
    last = '',
    lanes = {},
    opens = {},
  }
end

local function encode(row)
  return Codec.long(cmsgpack.pack({
    row.template,
    row.pool,
    row.used,
    row.capacity or false,
    row.closed_until or false,
    row.closed_by,
    row.closed_reason,
    row.last,
    row.timer_at or false,
    row.lanes,
    row.zone or false,
    row.opens,
    row.horizon_at or false,
    row.reserved or false,
  }))
end

local function decode(name, kept)
  local values = cmsgpack.unpack(kept)
  return {
    name = name,
    template = values[1],
    pool = values[2],
    used = values[3],
    capacity = values[4] or nil,
    closed_until = values[5] or nil,
    closed_by = values[6],
    closed_reason = values[7],
    last = values[8],
    timer_at = values[9] or nil,
    lanes = values[10],
    zone = values[11] or nil,
    opens = values[12],
    horizon_at = values[13] or nil,
    reserved = values[14] or nil,
  }
end

-- Return copies of the rows of gates, by name.
function Gates.load(names)
  local found = {}
  for place, kept in ipairs(Write.read(Keys.gates, names)) do
    if kept then
      local name = names[place]
      found[name] = decode(name, kept)
    end
  end
  return found
end

-- File a gate by time, or remove it if there is none.
local function file(added, gone, name, before, now)
  if now and now ~= before then
    added[#added + 1] = now
    added[#added + 1] = name
  elseif before and not now then
    gone[#gone + 1] = name
  end
end

-- Write gates, and delete idle ones.
--   rows: an array.
function Gates.save(rows)
  local olds = Gates.load(Codec.fields(rows, 'name'))
  local values, gone, named = {}, {}, {}
  local timers, no_timers, horizons, no_horizons = {}, {}, {}, {}
  for _, row in ipairs(rows) do
    local name = row.name
    local old = olds[name]
    file(timers, no_timers, name, old and old.timer_at, row.timer_at)
    file(horizons, no_horizons, name, old and old.horizon_at, row.horizon_at)
    if not GateRow.idle(row) then
      values[#values + 1], values[#values + 2] = name, encode(row)
      if not old then
        named[#named + 1], named[#named + 2] = 0, name
      end
    elseif old then
      gone[#gone + 1] = name
    end
  end
  Write.hdel(Keys.gates, gone)
  Write.zrem(Keys.gate_names, gone)
  Write.zrem(Keys.timers, no_timers)
  Write.zrem(Keys.horizons, no_horizons)
  Write.hset(Keys.gates, values)
  Write.zadd(Keys.gate_names, named)
  Write.zadd(Keys.timers, timers)
  Write.zadd(Keys.horizons, horizons)
end

-- Return the rows of gates, in the order of these names.
local function in_order(names)
  local rows, found = Gates.load(names), {}
  for _, name in ipairs(names) do
    found[#found + 1] = rows[name]
  end
  return found
end

-- Return gates with a row, by name, after `after`.
function Gates.page(after, limit)
  return in_order(redis.call('ZRANGEBYLEX', Keys.gate_names, '(' .. after, '+', 'LIMIT', 0, limit))
end

-- Return gates with due timers, earliest first.
function Gates.due_timers(limit)
  return redis.call('ZRANGEBYSCORE', Keys.timers, '-inf', Time.now, 'LIMIT', 0, limit)
end

-- Return the time of the next timer; nil if there is none.
function Gates.next_timer()
  return Codec.number(redis.call('ZRANGE', Keys.timers, 0, 0, 'WITHSCORES')[2])
end

-- Return hours that are known only up to before this time.
function Gates.short_horizons(before_at, limit)
  local high = '(' .. Codec.digits(before_at)
  return in_order(redis.call('ZRANGEBYSCORE', Keys.horizons, '-inf', high, 'LIMIT', 0, limit))
end
