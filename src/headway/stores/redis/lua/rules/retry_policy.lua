-- Written by `make lua` from headway.core.retry: change that.
-- Backoff: the delay before a job's next attempt, with reproducible jitter.
-- needs: base.python

local RetryPolicy = {}

-- Return whether no attempt is left after this one (1 for the first).
function RetryPolicy.exhausted(self, attempt)
  return attempt >= self.attempts
end

-- Return the delay after a failed attempt.
--
-- The jitter is a hash of the seed, so that a repeated settlement writes the same due time.
-- With `equal` and a factor of at least 2, no delay below the cap is shorter than the previous
-- one.
function RetryPolicy.delay_ms(self, attempt, seed)
  -- A larger exponent may overflow. The cap is reached before, unless the factor is almost 1.
  local most = self.factor <= 2 and 1000 or 64
  local whole = math.min((self.cap_ms), self.base_ms * self.factor ^ math.min(attempt - 1, most))
  if self.jitter == 'none' then
    return math.floor(whole)
  end
  local floor = self.jitter == 'equal' and whole / 2 or 0.0
  return math.floor(floor + (whole - floor) * Python.draw(seed))
end
