-- Expiry: a job that never started in time is dead.
-- needs: tables.jobs, engine.step
local Expire = {}

-- Ends queued jobs past their `expires_at`, at most `limit`. Returns how many ended.
function Expire.expire(step, limit)
  local ids = Jobs.expired(limit)
  Step.load(step, ids)
  for _, id in ipairs(ids) do
    Step.finish(step, step.rows[id], 'dead', '', { reason = 'expired' })
  end
  return #ids
end
