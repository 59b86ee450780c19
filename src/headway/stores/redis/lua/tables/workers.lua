-- The table of workers and their leases.
-- python: stores.ledger.tables.WorkerTable
-- needs: base.keys, base.write, base.time

local Workers = {}

-- Create the row of a new worker.
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

-- Load workers by id, in this order, without missing ones.
local function load_all(ids)
  local found = {}
  for place, kept in ipairs(Write.read(Keys.workers, ids)) do
    if kept then
      found[#found + 1] = decode(ids[place], kept)
    end
  end
  return found
end

-- Return a copy of a worker; nil if it does not exist.
function Workers.load(id)
  return load_all({ id })[1]
end

-- Write a worker.
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

-- Delete workers.
function Workers.remove(ids)
  Write.hdel(Keys.workers, ids)
  Write.zrem(Keys.leases, ids)
end

-- Return workers whose lease has ended and that no sweep has processed yet, earliest first.
function Workers.lapsed(limit)
  return load_all(redis.call('ZRANGEBYSCORE', Keys.leases, '-inf', Time.now, 'LIMIT', 0, limit))
end

-- Return all workers, in any order.
function Workers.all()
  return load_all(redis.call('HKEYS', Keys.workers))
end
