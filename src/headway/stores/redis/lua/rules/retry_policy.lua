-- Written by `make lua` from headway.core.retry: change that.
-- Backoff: how long a job waits before its next attempt; reproducible draws for its jitter.
-- needs: base.python

local RetryPolicy = {}

-- Return whether no attempt is left after this one (1 for the first).
function RetryPolicy.exhausted(self, attempt)
  return attempt >= self.attempts
end

-- The delay after a failed attempt.
--
-- The draw is a hash of the seed, so that a repeated settlement writes the same moment. With
-- `equal` and a factor of at least 2, no delay below the cap is shorter than the one before.
function RetryPolicy.delay_ms(self, attempt, seed)
  -- Beyond 2^64 the cap has long been reached; a larger exponent would overflow.
  local whole = math.min((self.cap_ms), self.base_ms * self.factor ^ math.min(attempt - 1, 64))
  if self.jitter == 'none' then
    return math.floor(whole)
  end
  local floor = self.jitter == 'equal' and whole / 2 or 0.0
  return math.floor(floor + (whole - floor) * Python.draw(seed))
end
