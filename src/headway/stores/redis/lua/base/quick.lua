-- The quick way of a verb: the commonest calls answered with few functions and few reads.
--
-- Half of the time of a small call goes into making the functions of the modules it looks at. So a
-- verb may name a module that goes first (`-- quick: quick.claim`): it answers, just as the verb
-- would, or gives nil before anything is written, and then the verb runs as if it had not been asked.
-- needs: base.keys
local Quick = {}

-- Of version 7 and later this is how scripts are replicated always; see base/write.
if redis.replicate_commands then
  redis.replicate_commands()
end

-- The time of the step, as base/time has it.
Quick.now = 0

local identity, epoch, high_at

-- Whether the store is the one that the client saw last, and is not marked as suspect.
local function look()
  local facts =
    redis.call('HMGET', Keys.facts, 'identity', 'epoch', 'format', 'suspect', 'high_at')
  if not (facts[1] and facts[2] and facts[5]) or facts[3] ~= '1' or facts[4] or ARGV[3] == '' then
    return false
  end
  local seen = cmsgpack.unpack(ARGV[3])
  identity, epoch, high_at = facts[1], tonumber(facts[2]), tonumber(facts[5])
  if seen[1] ~= identity or seen[2] ~= epoch or high_at < seen[3] or seen[4] then
    return false
  end
  local clock_at = tonumber(ARGV[2])
  if clock_at == nil then
    local seconds = redis.call('TIME')
    clock_at = seconds[1] * 1000 + math.floor(seconds[2] / 1000)
  end
  Quick.now = math.max(clock_at, high_at)
  return true
end

-- Remembers the time for the steps to come. Returns false if memory is used up, and nothing is
-- written then; behind `freely` it is always written.
function Quick.keep()
  local done = redis.pcall('HSET', Keys.facts, 'format', '1', 'high_at', Quick.now)
  if type(done) == 'table' then
    return false
  end
  high_at = Quick.now
  return true
end

-- Passes though memory is used up; see base/write.
function Quick.freely()
  redis.call('HDEL', Keys.facts, '')
end

-- A name that others may follow, as base/codec has it; nil for one that would have to be looked
-- through.
function Quick.name(text)
  return not string.find(text, '%z') and text .. '\0\0' or nil
end

-- Jobs of a lane went from one state to another; nil is outside.
--   name: of the lane, as `Quick.name` gives it.
function Quick.count(name, old, new, what, number)
  for _, of in ipairs({ name, '\0\0' }) do
    if old then
      redis.call('HINCRBY', Keys.counts, of .. old, -number)
    end
    redis.call('HINCRBY', Keys.counts, of .. new, number)
  end
  redis.call('HINCRBY', Keys.totals, what, number)
end

-- The reply of a call that a verb's quick module answers; nil if it does not, and then the request,
-- which is unpacked once, if it was.
--   verb: `run(request)` gives the verb's value, and the lane that it wakes, nil for none.
function Quick.call(verb)
  if not look() then
    return nil
  end
  local request = cmsgpack.unpack(ARGV[1])
  local value, lane = verb.run(request)
  if value == nil then
    return nil, request
  end
  local wakes = lane and { { lane, false } } or {}
  if lane and redis.call('EXISTS', Keys.waiters) == 1 then
    redis.call('PUBLISH', Keys.wakes, cmsgpack.pack({ ARGV[4], wakes }))
  end
  return cmsgpack.pack({ 0, value, Quick.now, wakes, identity, epoch, high_at, false })
end
