-- The trail of actions, and the replies to requests.
-- python: stores.ledger.tables.TrailTable
-- needs: base.keys, base.codec, base.write, base.time, rules.job_limits

local Trail = {}

local n6 = Codec.n6
-- How many old replies are deleted with each new one.
local FORGOTTEN = 100

-- Add lines, and assign their `seq`.
--   rows: {at, author, reason, verb, target, detail} each.
function Trail.add(rows)
  if #rows == 0 then
    return
  end
  local seq = Write.hincrby(Keys.facts, 'trail', #rows) - #rows
  local lines, targets = {}, {}
  for place, row in ipairs(rows) do
    local field = n6(seq + place)
    local values = { row.at, row.author, row.reason, row.verb, row.target, row.detail }
    lines[#lines + 1], lines[#lines + 2] = field, cmsgpack.pack(values)
    targets[#targets + 1], targets[#targets + 2] = 0, Codec.name(row.target) .. field
  end
  Write.hset(Keys.trail, lines)
  Write.zadd(Keys.trail_of, targets)
end

-- Remove the oldest lines, in order, but never the newest of all.
function Trail.remove(rows)
  if #rows == 0 then
    return
  end
  local fields, targets = {}, {}
  for place, row in ipairs(rows) do
    fields[place] = n6(row.seq)
    targets[place] = Codec.name(row.target) .. fields[place]
  end
  Write.hdel(Keys.trail, fields)
  Write.zrem(Keys.trail_of, targets)
  Write.put(Keys.facts, 'trail_gone', rows[#rows].seq)
end

-- Return the numbers of the last removed line and of the newest; 0 for none.
local function bounds()
  local found = redis.call('HMGET', Keys.facts, 'trail_gone', 'trail')
  return tonumber(found[1] or 0), tonumber(found[2] or 0)
end

-- Return the numbers of lines before one, newest first.
local function fields_before(before, limit)
  local gone, last = bounds()
  if before and before <= last then
    last = before - 1
  end
  local fields = {}
  for seq = last, math.max(gone + 1, last - limit + 1), -1 do
    fields[#fields + 1] = n6(seq)
  end
  return fields
end

-- Return the numbers of a target's lines before one, newest first.
local function fields_of(target, before, limit)
  local prefix = Codec.name(target)
  local low, high = Codec.prefix(prefix)
  if before then
    high = '(' .. prefix .. n6(math.max(0, before))
  end
  local fields = redis.call('ZREVRANGEBYLEX', Keys.trail_of, high, low, 'LIMIT', 0, limit)
  for place, member in ipairs(fields) do
    fields[place] = string.sub(member, #prefix + 1)
  end
  return fields
end

-- Return the lines with these numbers, in order.
local function lines_of(fields)
  local rows = {}
  for place, kept in ipairs(Write.read(Keys.trail, fields)) do
    local values = cmsgpack.unpack(kept)
    rows[place] = {
      seq = Codec.read6(fields[place], 1),
      at = values[1],
      author = values[2],
      reason = values[3],
      verb = values[4],
      target = values[5],
      detail = values[6],
    }
  end
  return rows
end

-- Return lines, newest first, of one target or all (nil), with a smaller seq than `before` (nil for
-- all).
function Trail.page(target, before, limit)
  return lines_of(target and fields_of(target, before, limit) or fields_before(before, limit))
end

-- Return lines, oldest first, with a larger seq than `after`.
function Trail.since(after, limit)
  local gone, last = bounds()
  local first, fields = math.max(after, gone) + 1, {}
  for seq = first, math.min(last, first + limit - 1) do
    fields[#fields + 1] = n6(seq)
  end
  return lines_of(fields)
end

-- Add one line with the current time.
function Trail.note(author, reason, verb, target, detail)
  Trail.add({
    {
      at = Time.now,
      author = author,
      reason = reason,
      verb = verb,
      target = target,
      detail = detail,
    },
  })
end

-- Return the reply to a request; nil if there is none.
function Trail.answer(request)
  return redis.call('HGET', Keys.answers, request) or nil
end

-- Store the reply to a request for at least two hours; the first reply stays.
function Trail.keep_answer(request, answer)
  local before = '(' .. Codec.digits(Time.now - JobLimits.ANSWERS_KEPT_MS)
  local old = redis.call('ZRANGEBYSCORE', Keys.answered, '-inf', before, 'LIMIT', 0, FORGOTTEN)
  Write.hdel(Keys.answers, old)
  Write.zrem(Keys.answered, old)
  if not Trail.answer(request) then
    Write.put(Keys.answers, request, answer)
    Write.zadd(Keys.answered, { Time.now, request })
  end
end
