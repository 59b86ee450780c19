-- The time of a step: the store's clock, never earlier than before.
-- python: stores.ledger.ledger.Ledger.now
-- needs: base.keys, base.write

local Time = {}

-- Milliseconds UTC; constant for the whole script.
Time.now = 0

local clock_at, high_at = 0, 0

-- Fix the time of the step.
--   clock: ms as text, for tests; "" for the server's clock.
--   high: the highest time that the store remembers, or false; nil to read it.
function Time.begin(clock, high)
  if clock ~= nil and clock ~= '' then
    clock_at = tonumber(clock)
  else
    local seconds = redis.call('TIME')
    clock_at = tonumber(seconds[1]) * 1000 + math.floor(tonumber(seconds[2]) / 1000)
  end
  if high == nil then
    Time.refresh()
  else
    high_at = tonumber(high or 0)
  end
  Time.now = math.max(clock_at, high_at)
end

-- Read the highest time that the store remembers; again after a step was rolled back.
function Time.refresh()
  high_at = tonumber(redis.call('HGET', Keys.facts, 'high_at') or 0)
end

-- Store the time for later steps; each verb that writes does so after its first write.
function Time.keep()
  if Time.now > high_at then
    high_at = Time.now
    Write.put(Keys.facts, 'high_at', Time.now)
  end
end

-- Return the highest time that the store remembers.
function Time.high()
  return high_at
end

-- Return how far the store's time is ahead of its clock, in ms.
function Time.ahead_ms()
  return math.max(0, Time.now - clock_at)
end

-- Set the store's time back to its clock, for an operator.
function Time.turn_back()
  Time.now, high_at = clock_at, clock_at
  Write.put(Keys.facts, 'high_at', clock_at)
end
