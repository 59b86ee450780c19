-- The table of runs' signal keys, and of received events.
-- python: stores.ledger.tables.SignalTable, stores.ledger.step.Step.kept_events as kept
-- python: stores.ledger.packing.decode_signal as cmsgpack.unpack
-- python: stores.ledger.packing.encode_signal as cmsgpack.pack
-- python: core.check.read_reference
-- needs: base.keys, base.codec, base.write, base.time

local Signals = {}

local name, n6 = Codec.name, Codec.n6

-- In one hash: runs by key under "k", and the keys of a job under "j".

-- Return the {job, run} known by a key; nil if there is none.
function Signals.known(key)
  local kept = redis.call('HGET', Keys.known, 'k' .. key)
  return kept and cmsgpack.unpack(kept) or nil
end

-- Parse a reference, `job:run`, to {job, run}; nil if it is not one.
function Signals.read_reference(text)
  local job, run = string.match(text, '^([^:]*):(%d+)$')
  if job == nil or #run >= 10 then
    return nil
  end
  return { job, tonumber(run) }
end

-- Make a run known by a key; a later run takes over the key.
function Signals.make_known(key, job, run)
  local kept = redis.call('HGET', Keys.known, 'j' .. job)
  local keys = kept and cmsgpack.unpack(kept) or {}
  local missing = true
  for _, one in ipairs(keys) do
    missing = missing and one ~= key
  end
  if missing then
    keys[#keys + 1] = key
    Write.put(Keys.known, 'j' .. job, Codec.long(cmsgpack.pack(keys)))
  end
  Write.put(Keys.known, 'k' .. key, Codec.long(cmsgpack.pack({ job, run })))
  Write.zadd(Keys.known_names, { 0, key })
end

-- Return the {key, job, run} of these jobs' runs, in any order.
function Signals.known_as(jobs)
  local lists, keys, owners, found = {}, {}, {}, {}
  for place, job in ipairs(jobs) do
    lists[place] = 'j' .. job
  end
  for place, kept in ipairs(Write.read(Keys.known, lists)) do
    for _, key in ipairs(kept and cmsgpack.unpack(kept) or {}) do
      keys[#keys + 1], owners[#owners + 1] = 'k' .. key, jobs[place]
    end
  end
  for place, kept in ipairs(Write.read(Keys.known, keys)) do
    local run = kept and cmsgpack.unpack(kept)
    if run and run[1] == owners[place] then
      found[#found + 1] = { string.sub(keys[place], 2), run[1], run[2] }
    end
  end
  return found
end

-- Return all {key, job, run}, by key, after `after`.
function Signals.all_known(after, limit)
  local low = after == '' and '-' or '(' .. after
  local keys = redis.call('ZRANGEBYLEX', Keys.known_names, low, '+', 'LIMIT', 0, limit)
  local found = {}
  for place, key in ipairs(keys) do
    local run = Signals.known(key)
    found[place] = { key, run[1], run[2] }
  end
  return found
end

local function decode(scope, event, kept)
  local values = cmsgpack.unpack(kept)
  return {
    scope = scope,
    event = event,
    key = values[1],
    at = values[2],
    number = values[3],
    kept_until = values[4] or nil,
    payload = values[5],
  }
end

-- Return the event, if it was received in the scope; otherwise nil.
function Signals.received(scope, event)
  local kept = redis.call('HGET', Keys.events, name(scope) .. event)
  return kept and decode(scope, event, kept) or nil
end

-- Return the member by which a kept event is filed: by its key, in order of arrival.
local function kept_member(row)
  return name(row.key) .. n6(row.at) .. n6(row.number) .. name(row.scope) .. row.event
end

-- Write an event.
function Signals.save(row)
  local place = name(row.scope) .. row.event
  local old = Signals.received(row.scope, row.event)
  if old and old.kept_until then
    Write.zrem(Keys.kept, { kept_member(old) })
  end
  local number = old and old.number or Write.hincrby(Keys.facts, 'events', 1)
  local values = { row.key, row.at, number, row.kept_until or false, row.payload or '' }
  Write.put(Keys.events, place, Codec.long(cmsgpack.pack(values)))
  Write.zadd(Keys.scopes, { 0, place })
  if row.kept_until then
    row.number = number
    Write.zadd(Keys.kept, { 0, kept_member(row) })
    Write.zadd(Keys.stale, { row.kept_until, place })
  else
    Write.zrem(Keys.stale, { place })
  end
end

-- Return the events of places (scope and event), in this order.
local function events_of(places)
  local found = {}
  for place, kept in ipairs(Write.read(Keys.events, places)) do
    if kept then
      local scope, at = Codec.read_name(places[place], 1)
      found[#found + 1] = decode(scope, string.sub(places[place], at), kept)
    end
  end
  return found
end

-- Return events by (scope, event), after `after`.
--   after: {scope, event}.
function Signals.all_received(after, limit)
  local low = '(' .. name(after[1]) .. after[2]
  return events_of(redis.call('ZRANGEBYLEX', Keys.scopes, low, '+', 'LIMIT', 0, limit))
end

-- Return events kept for a key, oldest first.
function Signals.kept(key)
  local prefix = name(key)
  local low, high = Codec.prefix(prefix)
  local places = redis.call('ZRANGEBYLEX', Keys.kept, low, high)
  for place, member in ipairs(places) do
    places[place] = string.sub(member, #prefix + 13)
  end
  return events_of(places)
end

-- Return whether events are kept for a key.
function Signals.has_kept(key)
  return redis.call('ZLEXCOUNT', Keys.kept, Codec.prefix(name(key))) > 0
end

-- Return how many events are kept.
function Signals.kept_count()
  return redis.call('ZCARD', Keys.stale)
end

-- Delete events.
--   rows: each with its scope and event.
function Signals.drop(rows)
  local places, kept = {}, {}
  for _, row in ipairs(rows) do
    places[#places + 1] = name(row.scope) .. row.event
  end
  for _, old in ipairs(events_of(places)) do
    if old.kept_until then
      kept[#kept + 1] = kept_member(old)
    end
  end
  Write.zrem(Keys.kept, kept)
  Write.zrem(Keys.stale, places)
  Write.zrem(Keys.scopes, places)
  Write.hdel(Keys.events, places)
end

-- Return kept events past their time, earliest first.
function Signals.stale(limit)
  return events_of(redis.call('ZRANGEBYSCORE', Keys.stale, '-inf', Time.now, 'LIMIT', 0, limit))
end

-- Remove the signal keys and events of removed jobs; a key that another job has taken over stays.
function Signals.forget_jobs(jobs)
  local fields, names = {}, {}
  for place, job in ipairs(jobs) do
    fields[place] = 'j' .. job
  end
  for place, one in ipairs(Signals.known_as(jobs)) do
    fields[#fields + 1], names[place] = 'k' .. one[1], one[1]
  end
  Write.hdel(Keys.known, fields)
  Write.zrem(Keys.known_names, names)
  if redis.call('ZCARD', Keys.scopes) == 0 then
    return
  end
  local gone = {}
  for _, job in ipairs(jobs) do
    local low, high = Codec.prefix(name(job))
    for _, member in ipairs(redis.call('ZRANGEBYLEX', Keys.scopes, low, high)) do
      gone[#gone + 1] = member
    end
  end
  Signals.drop(events_of(gone))
end
