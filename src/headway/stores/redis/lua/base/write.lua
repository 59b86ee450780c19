-- All writes go through here: immediate, in batches that fit a call, and rolled back if a verb that
-- may refuse does.
-- needs: base.keys
--
-- A write can fail only if memory is full, and only before the first write; see `freely` and
-- `guarded`.

local Write = {}

local call = redis.call
-- Maximum number of values per call; Lua's stack holds 8,000.
local MOST = 4000

-- Before version 7, a script that reads the time cannot be replicated verbatim; its effects are
-- replicated instead, as later versions always do.
if redis.replicate_commands then
  redis.replicate_commands()
end

local journal = nil

-- Start the journal: from here on, every write records how to undo it.
function Write.begin()
  journal = journal or {}
end

-- End the journal: nothing is refused from here on. Its reading of old values would cost more than
-- the removal of many jobs.
function Write.end_journal()
  journal = nil
end

local last = nil

-- Call a function when the verb is done and not refused, so that frequent changes which may wait
-- are written once.
function Write.at_last(write)
  last = { write, last }
end

-- Run the functions of `at_last`.
function Write.finish()
  while last do
    local write = last[1]
    last = last[2]
    write()
  end
end

-- Undo all writes since `begin`, the last first.
function Write.roll_back()
  local undo = journal or {}
  journal = nil
  for place = #undo, 1, -1 do
    undo[place]()
  end
end

-- Allow writes even if memory is full: the server refuses no command of a script that has deleted
-- something.
function Write.freely()
  call('HDEL', Keys.facts, '')
end

-- Fail before anything is written if memory is full.
function Write.guarded()
  call('HSET', Keys.facts, 'format', '1')
end

-- Call a command with all values, a bounded number at a time.
--   step: number of values that belong together.
local function batched(command, key, values, step)
  local count = #values
  if count <= MOST then
    if count > 0 then
      call(command, key, unpack(values, 1, count))
    end
    return
  end
  local size = MOST - MOST % step
  for from = 1, count, size do
    call(command, key, unpack(values, from, math.min(from + size - 1, count)))
  end
end

-- Read any number of fields or scores; false for a missing one.
local function read_all(command, key, names)
  local count = #names
  if count == 0 then
    return {}
  end
  if count <= MOST then
    return call(command, key, unpack(names, 1, count))
  end
  local found = {}
  for from = 1, count, MOST do
    local some = call(command, key, unpack(names, from, math.min(from + MOST - 1, count)))
    for place = 1, #some do
      found[from + place - 1] = some[place]
    end
  end
  return found
end

-- Read the values of any number of fields, in order; false for a missing one.
function Write.read(key, fields)
  return read_all('HMGET', key, fields)
end

-- Return every second value from a place on.
local function every_second(values, from)
  local found = {}
  for place = from, #values, 2 do
    found[#found + 1] = values[place]
  end
  return found
end

-- Record how to restore fields of a hash, or members of a sorted set.
--   sorted: whether it is a sorted set.
local function note(key, names, sorted)
  local old = read_all(sorted and 'ZMSCORE' or 'HMGET', key, names)
  journal[#journal + 1] = function()
    local back, gone = {}, {}
    for place, name in ipairs(names) do
      local had = old[place]
      if had then
        back[#back + 1] = sorted and had or name
        back[#back + 1] = sorted and name or had
      else
        gone[#gone + 1] = name
      end
    end
    batched(sorted and 'ZREM' or 'HDEL', key, gone, 1)
    batched(sorted and 'ZADD' or 'HSET', key, back, 2)
  end
end

-- Write one field of a hash.
function Write.put(key, field, value)
  if journal then
    note(key, { field })
  end
  call('HSET', key, field, value)
end

-- Write fields of a hash.
--   values: field, value, field, value, ...
function Write.hset(key, values)
  if journal and #values > 0 then
    note(key, every_second(values, 1))
  end
  batched('HSET', key, values, 2)
end

-- Remove fields of a hash.
function Write.hdel(key, fields)
  if journal and #fields > 0 then
    note(key, fields)
  end
  batched('HDEL', key, fields, 1)
end

-- Add to a number in a hash, and return the sum.
function Write.hincrby(key, field, number)
  if journal then
    note(key, { field })
  end
  return call('HINCRBY', key, field, number)
end

-- Add members to a sorted set, or change their scores.
--   values: score, member, score, member, ...
function Write.zadd(key, values)
  if journal and #values > 0 then
    note(key, every_second(values, 2), true)
  end
  batched('ZADD', key, values, 2)
end

-- Remove members of a sorted set.
function Write.zrem(key, members)
  if journal and #members > 0 then
    note(key, members, true)
  end
  batched('ZREM', key, members, 1)
end
