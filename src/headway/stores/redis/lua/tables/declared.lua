-- What is declared besides gates and lanes: timetable entries and tokens, and the revision of all.
-- python: stores.ledger.tables.EntryTable, stores.ledger.tables.EntryTable.load as entry
-- python: stores.ledger.tables.EntryTable.save as save_entry
-- python: stores.ledger.verbs.define._same_schedule
-- needs: base.keys, base.codec, base.write, base.python

local Declared = {}

-- Rows of entries by their names, in this order; one that has none is left out.
local function load_all(names)
  local found = {}
  for place, kept in ipairs(Write.read(Keys.entries, names)) do
    if kept then
      local row = cmsgpack.unpack(kept)
      row.name = names[place]
      found[#found + 1] = row
    end
  end
  return found
end

-- An entry, as {name, spec, revision, last_fired, ahead_until, folded, first_seen_at}; a copy.
-- nil for none.
function Declared.entry(name)
  return load_all({ name })[1]
end

-- All entries, removed ones among them, by name.
function Declared.entries()
  local names = redis.call('HKEYS', Keys.entries)
  table.sort(names, Codec.less)
  return load_all(names)
end

-- Whether two specs of entries have the same schedule: each has one of the three.
function Declared.same_schedule(one, other)
  return Python.same(one.cron, other.cron)
    and Python.same(one.every, other.every)
    and Python.same(one.at, other.at)
end

-- Writes an entry.
function Declared.save_entry(row)
  local kept = {
    spec = row.spec or nil,
    revision = row.revision,
    last_fired = row.last_fired or nil,
    ahead_until = row.ahead_until or nil,
    folded = row.folded or 0,
    first_seen_at = row.first_seen_at or 0,
  }
  Write.put(Keys.entries, row.name, cmsgpack.pack(kept))
end

-- The tokens of these ids, as {spec, created_at, created_by, used_at}; one that has none is left
-- out.
function Declared.tokens(ids)
  local found = {}
  for _, kept in ipairs(Write.read(Keys.tokens, ids)) do
    if kept then
      found[#found + 1] = cmsgpack.unpack(kept)
    end
  end
  return found
end

-- All tokens, in any order.
function Declared.all_tokens()
  return Declared.tokens(redis.call('HKEYS', Keys.tokens))
end

-- How many there are.
function Declared.token_count()
  return redis.call('HLEN', Keys.tokens)
end

-- Writes tokens.
function Declared.save_tokens(rows)
  local values = {}
  for _, row in ipairs(rows) do
    values[#values + 1], values[#values + 2] = row.spec.id, cmsgpack.pack(row)
  end
  Write.hset(Keys.tokens, values)
end

-- Forgets a token.
function Declared.remove_token(id)
  Write.hdel(Keys.tokens, { id })
end

-- The revision of the definitions.
function Declared.revision()
  return tonumber(redis.call('HGET', Keys.facts, 'revision') or 0)
end

-- Counts one more; the revision now.
function Declared.bump_revision()
  return Write.hincrby(Keys.facts, 'revision', 1)
end
