-- The table of deduplication keys.
-- python: stores.ledger.step.keep_key
-- needs: base.keys, base.codec, base.write

local Dedupe = {}

local function field(tenant, key)
  return Codec.name(tenant) .. key
end

local function decode(tenant, key, kept)
  local values = cmsgpack.unpack(kept)
  return {
    tenant = tenant,
    key = key,
    job = values[1],
    body = values[2],
    until_at = values[3] or nil,
  }
end

-- Return the rows of keys, in this order; false for a missing one.
--   keys: {tenant, key} each.
function Dedupe.load(keys)
  local fields = {}
  for place, one in ipairs(keys) do
    fields[place] = field(one[1], one[2])
  end
  local found = Write.read(Keys.dedupe, fields)
  for place, one in ipairs(keys) do
    local kept = found[place]
    found[place] = kept and decode(one[1], one[2], kept) or false
  end
  return found
end

-- Return the row of a key; nil if there is none.
function Dedupe.get(tenant, key)
  return Dedupe.load({ { tenant, key } })[1] or nil
end

-- Keep a job's key until a time (nil: as long as the job), unless another job has it.
function Dedupe.keep_key(row, until_at)
  local known = Dedupe.get(row.tenant, row.key)
  if known ~= nil and known.job == row.id then
    known.until_at = until_at
    Dedupe.save({ known })
  end
end

-- Write keys.
--   rows: {tenant, key, job, body, until_at} each.
function Dedupe.save(rows)
  local values = {}
  for _, row in ipairs(rows) do
    local kept = Codec.long(cmsgpack.pack({ row.job, row.body, row.until_at or false }))
    values[#values + 1], values[#values + 2] = field(row.tenant, row.key), kept
  end
  Write.hset(Keys.dedupe, values)
end

-- Delete the key of a deleted job.
function Dedupe.forget(tenant, key, job)
  local row = Dedupe.get(tenant, key)
  if row and row.job == job then
    Write.hdel(Keys.dedupe, { field(tenant, key) })
  end
end
