-- Backoff: how long a job waits before its next attempt.
-- needs:

local Retry = {}

-- Whether no attempt is left after this one (1 for the first).
function Retry.exhausted(retry, attempt)
  return attempt >= retry.attempts
end

-- The delay after a failed attempt, ms from 0 to `cap_ms`. The draw is a hash of the seed, so that
-- a repeated settlement writes the same moment.
--   attempt: the attempt that failed, 1 for the first.
--   seed: what the jitter is drawn from, such as the job's id and run.
function Retry.delay_ms(retry, attempt, seed)
  -- Beyond 2^64 the cap has long been reached; a larger exponent would overflow.
  local exponent = math.min(attempt - 1, 64)
  local whole = math.min(retry.cap_ms, retry.base_ms * retry.factor ^ exponent)
  if retry.jitter == 'none' then
    return math.floor(whole)
  end
  -- 52 bits, exact in a double.
  local draw = tonumber(string.sub(redis.sha1hex(seed), 1, 13), 16) / 2 ^ 52
  local floor = retry.jitter == 'equal' and whole / 2 or 0
  return math.floor(floor + (whole - floor) * draw)
end
