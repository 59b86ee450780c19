-- Fairness between the tenants of a lane: virtual starts by weight.
-- needs:

local Fairness = {}

-- The tenants of a fair lane.
--   level: no tenant that can run counts as having had less.
--   starts: virtual starts of each tenant, in millionths.
--   weights: of each tenant; 1 if not named.
function Fairness.new(level, starts, weights)
  return { level = level, starts = starts, weights = weights }
end

-- The tenant's virtual starts.
function Fairness.of(fairness, tenant)
  return math.max(fairness.starts[tenant] or 0, fairness.level)
end

-- Counts one start of the tenant.
function Fairness.count(fairness, tenant)
  local step = math.floor(1000000 / (fairness.weights[tenant] or 1))
  fairness.starts[tenant] = Fairness.of(fairness, tenant) + step
end
