-- The quick path of a verb: handles the most frequent calls with few functions and few reads.
--
-- Half of the time of a small call is spent on creating the functions of the modules it uses. So a
-- verb may name a module to run first (`-- quick: quick.claim`): it replies exactly as the verb
-- would, or returns nil before anything is written, and then the verb runs.
-- needs: base.keys
local Quick = {}

-- Version 7 and later always replicate scripts this way; see base/write.
if redis.replicate_commands then
  redis.replicate_commands()
end

-- The time of the step, as in base/time.
Quick.now = 0

local identity, epoch, high_at

-- Return whether the store matches the client's fingerprint, and is not marked as suspect.
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

-- Store the time for later steps. Return false, with nothing written, if memory is full; after
-- `freely` it is always written.
function Quick.keep()
  local done = redis.pcall('HSET', Keys.facts, 'format', '1', 'high_at', Quick.now)
  if type(done) == 'table' then
    return false
  end
  high_at = Quick.now
  return true
end

-- Allow writes even if memory is full; see base/write.
function Quick.freely()
  redis.call('HDEL', Keys.facts, '')
end

-- Encode a name as in base/codec; nil for a name that contains NUL.
function Quick.name(text)
  return not string.find(text, '%z') and text .. '\0\0' or nil
end

-- Count jobs of a lane that moved from one state to another; nil is outside.
--   name: the lane, as encoded by `Quick.name`.
function Quick.count(name, old, new, what, number)
  for _, of in ipairs({ name, '\0\0' }) do
    if old then
      redis.call('HINCRBY', Keys.counts, of .. old, -number)
    end
    redis.call('HINCRBY', Keys.counts, of .. new, number)
  end
  redis.call('HINCRBY', Keys.totals, what, number)
end

-- Return the reply of the verb's quick module; or nil, and the request if it was unpacked.
--   verb: `run(request)` returns the verb's value, and the lane to wake, nil for none.
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
