-- Tokens.
-- needs: base.keys, base.write

local Tokens = {}

-- The tokens of these ids, as {spec, created_at, created_by, used_at}; one that has none is left
-- out.
function Tokens.load(ids)
  local found = {}
  for _, kept in ipairs(Write.read(Keys.tokens, ids)) do
    if kept then
      found[#found + 1] = cmsgpack.unpack(kept)
    end
  end
  return found
end

-- All tokens, in any order.
function Tokens.all()
  return Tokens.load(redis.call('HKEYS', Keys.tokens))
end

-- How many there are.
function Tokens.count()
  return redis.call('HLEN', Keys.tokens)
end

-- Writes tokens.
function Tokens.save(rows)
  local values = {}
  for _, row in ipairs(rows) do
    values[#values + 1], values[#values + 2] = row.spec.id, cmsgpack.pack(row)
  end
  Write.hset(Keys.tokens, values)
end

-- Forgets a token.
function Tokens.remove(id)
  Write.hdel(Keys.tokens, { id })
end
