-- The timetable.
-- needs: base.keys, base.codec, base.write

local Entries = {}

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
function Entries.load(name)
  return load_all({ name })[1]
end

-- All entries, removed ones among them, by name.
function Entries.all()
  local names = redis.call('HKEYS', Keys.entries)
  table.sort(names, Codec.less)
  return load_all(names)
end

-- Writes an entry.
function Entries.save(row)
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
