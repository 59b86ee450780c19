-- Declarations other than gates and lanes: timetable entries and tokens; and the revision of all.
-- python: stores.ledger.tables.EntryTable, stores.ledger.tables.EntryTable.load as entry
-- python: stores.ledger.tables.EntryTable.save as save_entry
-- python: stores.ledger.verbs.define._same_schedule
-- needs: base.keys, base.write, base.python

local Declared = {}

-- Load entries by name, in this order, without missing ones.
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

-- Return a copy of an entry, as {name, spec, revision, last_fired, ahead_until, folded,
-- first_seen_at}; nil if it does not exist.
function Declared.entry(name)
  return load_all({ name })[1]
end

-- Return the entries with these names, or all in any order; including removed ones.
function Declared.entries(names)
  return load_all(names or redis.call('HKEYS', Keys.entries))
end

-- Return whether two specs of entries have the same schedule, which is one of three fields.
function Declared.same_schedule(one, other)
  return Python.same(one.cron, other.cron)
    and Python.same(one.every, other.every)
    and Python.same(one.at, other.at)
end

-- Write an entry.
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

-- Return the tokens of these ids, as {spec, created_at, created_by, used_at}, without missing ones.
function Declared.tokens(ids)
  local found = {}
  for _, kept in ipairs(Write.read(Keys.tokens, ids)) do
    if kept then
      found[#found + 1] = cmsgpack.unpack(kept)
    end
  end
  return found
end

-- Return all tokens, in any order.
function Declared.all_tokens()
  return Declared.tokens(redis.call('HKEYS', Keys.tokens))
end

-- Return the number of tokens.
function Declared.token_count()
  return redis.call('HLEN', Keys.tokens)
end

-- Write tokens.
function Declared.save_tokens(rows)
  local values = {}
  for _, row in ipairs(rows) do
    values[#values + 1], values[#values + 2] = row.spec.id, cmsgpack.pack(row)
  end
  Write.hset(Keys.tokens, values)
end

-- Delete a token.
function Declared.remove_token(id)
  Write.hdel(Keys.tokens, { id })
end

-- Return the revision of the definitions.
function Declared.revision()
  return tonumber(redis.call('HGET', Keys.facts, 'revision') or 0)
end

-- Increment the revision, and return it.
function Declared.bump_revision()
  return Write.hincrby(Keys.facts, 'revision', 1)
end
