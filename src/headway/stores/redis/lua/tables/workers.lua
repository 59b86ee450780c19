-- The table of workers and their leases.
-- python: stores.ledger.tables.WorkerTable
-- needs: base.keys, base.codec, base.write, base.time

local Workers = {}

-- A worker that was not seen yet.
function Workers.new(id)
  return {
    id = id,
    name = '',
    lanes = {},
    seen_at = 0,
    lease_until = 0,
    request = 0,
    lapsed = false,
  }
end

local function decode(id, kept)
  local values = cmsgpack.unpack(kept)
  return {
    id = id,
    name = values[1],
    lanes = values[2],
    seen_at = values[3],
    lease_until = values[4],
    request = values[5],
    lapsed = values[6],
  }
end

-- Workers by their ids, in this order; one that has no row is left out.
local function load_all(ids)
  local found = {}
  for place, kept in ipairs(Write.read(Keys.workers, ids)) do
    if kept then
      found[#found + 1] = decode(ids[place], kept)
    end
  end
  return found
end

-- A worker; a copy. nil for none.
function Workers.load(id)
  return load_all({ id })[1]
end

-- Writes a worker.
function Workers.save(row)
  local values =
    { row.name, row.lanes, row.seen_at, row.lease_until, row.request, row.lapsed or false }
  Write.put(Keys.workers, row.id, cmsgpack.pack(values))
  if row.lapsed then
    Write.zrem(Keys.leases, { row.id })
  else
    Write.zadd(Keys.leases, { row.lease_until, row.id })
  end
end

-- Forgets workers.
function Workers.remove(ids)
  Write.hdel(Keys.workers, ids)
  Write.zrem(Keys.leases, ids)
end

-- Workers whose lease has ended and that no sweep has seen yet, earliest first.
function Workers.lapsed(limit)
  return load_all(redis.call('ZRANGEBYSCORE', Keys.leases, '-inf', Time.now, 'LIMIT', 0, limit))
end

-- All workers, by id.
function Workers.all()
  local ids = redis.call('HKEYS', Keys.workers)
  table.sort(ids, Codec.less)
  return load_all(ids)
end
