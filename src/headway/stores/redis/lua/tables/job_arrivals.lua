-- All jobs in order of arrival, in chunks, because an entry per job would cost more memory than its
-- place in a queue.
-- needs: base.keys, base.codec, base.write

local JobArrivals = {}

local CHUNK = 64
-- Bytes of an entry in a chunk: the job's position, and its id.
local ENTRY = 37

local sub, byte, char = string.sub, string.byte, string.char

local function chunk_of(seq)
  return math.floor(seq / CHUNK)
end

-- Return chunks by number; "" for a missing one.
local function read(numbers)
  local fields = {}
  for place, number in ipairs(numbers) do
    fields[place] = Codec.n6(number)
  end
  local found, chunks = Write.read(Keys.arrivals, fields), {}
  for place, number in ipairs(numbers) do
    chunks[number] = found[place] or ''
  end
  return chunks
end

-- Add jobs, whose seqs increase and are higher than all before.
function JobArrivals.add(rows)
  local numbers, parts = {}, {}
  for place = 1, #rows do
    local row = rows[place]
    local number = chunk_of(row.seq)
    local list = parts[number]
    if not list then
      list = {}
      parts[number] = list
      numbers[#numbers + 1] = number
    end
    list[#list + 1] = char(row.seq % CHUNK) .. row.id
  end
  -- Only the first chunk may already have jobs.
  local chunks = read({ numbers[1] })
  local values, scores = {}, {}
  for _, number in ipairs(numbers) do
    local field = Codec.n6(number)
    values[#values + 1] = field
    values[#values + 1] = (chunks[number] or '') .. table.concat(parts[number])
    scores[#scores + 1] = number
    scores[#scores + 1] = field
  end
  Write.hset(Keys.arrivals, values)
  Write.zadd(Keys.chunks, scores)
end

-- Return a chunk without some of its jobs.
local function without(chunk, places)
  local left = {}
  for at = 1, #chunk, ENTRY do
    if not places[byte(chunk, at)] then
      left[#left + 1] = sub(chunk, at, at + ENTRY - 1)
    end
  end
  return table.concat(left)
end

-- Remove jobs.
function JobArrivals.remove(rows)
  local numbers, gone = {}, {}
  for _, row in ipairs(rows) do
    local number = chunk_of(row.seq)
    if not gone[number] then
      gone[number] = {}
      numbers[#numbers + 1] = number
    end
    gone[number][row.seq % CHUNK] = true
  end
  local chunks = read(numbers)
  local values, empty = {}, {}
  for _, number in ipairs(numbers) do
    local left = without(chunks[number], gone[number])
    local field = Codec.n6(number)
    if left == '' then
      empty[#empty + 1] = field
    else
      values[#values + 1] = field
      values[#values + 1] = left
    end
  end
  Write.hdel(Keys.arrivals, empty)
  Write.zrem(Keys.chunks, empty)
  Write.hset(Keys.arrivals, values)
end

-- Return numbers of chunks from one on, descending if `newest`.
local function numbers_from(from, count, newest)
  local found
  if newest then
    found = redis.call('ZREVRANGEBYSCORE', Keys.chunks, from, '-inf', 'LIMIT', 0, count)
  else
    found = redis.call('ZRANGEBYSCORE', Keys.chunks, from, '+inf', 'LIMIT', 0, count)
  end
  for place, field in ipairs(found) do
    found[place] = Codec.read6(field, 1)
  end
  return found
end

-- Return whether a job comes after another in the order of the walk.
local function is_behind(seq, after, newest)
  if newest then
    return seq < after
  end
  return seq > after
end

-- Add the ids of a chunk that come after a job, in the order of the walk, up to a limit.
local function add_ids(chunk, number, after, newest, limit, ids)
  local first, last, step = 1, #chunk - ENTRY + 1, ENTRY
  if newest then
    first, last, step = last, first, -ENTRY
  end
  for at = first, last, step do
    if #ids == limit then
      return
    end
    if is_behind(number * CHUNK + byte(chunk, at), after, newest) then
      ids[#ids + 1] = sub(chunk, at + 1, at + ENTRY - 1)
    end
  end
end

-- Return ids of jobs by arrival.
--   after: seq after which to start; nil for the first, or the last if `newest`.
--   newest: whether in reverse order.
function JobArrivals.walk(after, limit, newest)
  after = after or (newest and 2 ^ 48 or 0)
  local ids, from = {}, chunk_of(after)
  while #ids < limit do
    local numbers = numbers_from(from, 2 + math.ceil(limit / CHUNK), newest)
    if not numbers[1] then
      break
    end
    local chunks = read(numbers)
    for _, number in ipairs(numbers) do
      add_ids(chunks[number], number, after, newest, limit, ids)
    end
    from = numbers[#numbers] + (newest and -1 or 1)
  end
  return ids
end
