-- The table of starts counted by rates: one number for each gate and millisecond.
-- python: stores.ledger.tables.StartTable
-- needs: base.keys, base.codec, base.write, base.time

local Starts = {}

local n6, name = Codec.n6, Codec.name
-- Members read in one call.
local PAGE = 1000

-- Return the bounds of a gate's times after one, up to another; nil for no end.
local function bounds(prefix, after_at, until_at)
  local low = '[' .. prefix .. n6(math.max(0, after_at + 1))
  if until_at then
    return low, '(' .. prefix .. n6(until_at + 1)
  end
  return low, Codec.behind(prefix)
end

-- Return the time and the number of a member.
local function read(member)
  local size = #member
  return Codec.read6(member, size - 11), Codec.read6(member, size - 5)
end

-- Return the member of a gate and time; nil if there is none.
local function standing(place)
  local low, high = Codec.prefix(place)
  return redis.call('ZRANGEBYLEX', Keys.starts, low, high, 'LIMIT', 0, 1)[1]
end

-- Count starts now.
--   counts: numbers by gate.
function Starts.add(counts)
  local gone, added = {}, {}
  for gate, number in pairs(counts) do
    local place = name(gate) .. n6(Time.now)
    local old = standing(place)
    if old then
      gone[#gone + 1] = old
      local _, before = read(old)
      number = number + before
    end
    added[#added + 1], added[#added + 2] = 0, place .. n6(number)
  end
  Write.zrem(Keys.starts, gone)
  Write.zadd(Keys.starts, added)
end

-- Set the number of starts at times, replacing previous counts.
--   moments: numbers by time.
function Starts.put(gate, moments)
  local gone, added = {}, {}
  for at, number in pairs(moments) do
    local place = name(gate) .. n6(at)
    gone[#gone + 1] = standing(place)
    added[#added + 1], added[#added + 2] = 0, place .. n6(number)
  end
  Write.zrem(Keys.starts, gone)
  Write.zadd(Keys.starts, added)
end

-- Call a function with the members within bounds, a page at a time.
local function each_page(low, high, look)
  while true do
    local members = redis.call('ZRANGEBYLEX', Keys.starts, low, high, 'LIMIT', 0, PAGE)
    look(members)
    if #members < PAGE then
      return
    end
    low = '(' .. members[PAGE]
  end
end

-- Return the sum of the numbers of members.
local function sum_of(members)
  local sum = 0
  for _, member in ipairs(members) do
    local _, number = read(member)
    sum = sum + number
  end
  return sum
end

-- Delete the starts up to and including a time. Return how many.
function Starts.trim(gate, until_at)
  if until_at < 0 then
    return 0
  end
  local number = 0
  local low, high = bounds(name(gate), -1, until_at)
  each_page(low, high, function(members)
    number = number + sum_of(members)
    Write.zrem(Keys.starts, members)
  end)
  return number
end

-- Return the sum of the numbers within bounds.
local function sum_within(low, high)
  local number = 0
  each_page(low, high, function(members)
    number = number + sum_of(members)
  end)
  return number
end

-- Return the number of starts after a time.
--   stored: the gate's total number of stored starts, if known. A long window may contain a time
--   for each of its milliseconds; then the few that have left it are counted instead.
function Starts.total(gate, after_at, stored)
  local prefix = name(gate)
  local low, high = bounds(prefix, after_at, nil)
  if stored and after_at >= 0 then
    local old_low, old_high = bounds(prefix, -1, after_at)
    local later = redis.call('ZLEXCOUNT', Keys.starts, low, high)
    if later > PAGE and later > redis.call('ZLEXCOUNT', Keys.starts, old_low, old_high) then
      return stored - sum_within(old_low, old_high)
    end
  end
  return sum_within(low, high)
end

-- Return the first {time, number} after a time, oldest first.
function Starts.oldest(gate, after_at, limit)
  local low, high = bounds(name(gate), after_at, nil)
  local found = redis.call('ZRANGEBYLEX', Keys.starts, low, high, 'LIMIT', 0, limit)
  for place, member in ipairs(found) do
    local at, number = read(member)
    found[place] = { at, number }
  end
  return found
end
