-- Retention: how long a final job is kept.
-- needs:

local Retention = {}

-- How long a job is kept after its end, ms. Its key must answer for `key_for_ms`, and answers with
-- the job; so the job is kept as long.
function Retention.kept_for(policy, keyed)
  if keyed then
    return math.max(policy.keep_ms, policy.key_for_ms)
  end
  return policy.keep_ms
end
