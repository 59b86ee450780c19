-- Fairness between the tenants of a lane: virtual starts by weight.
-- needs:

local Fairness = {}

-- The tenants of a fair lane, in one claim.
--   level: no tenant that can run counts as having had less.
--   starts: virtual starts of each tenant, in millionths.
--   weights: of each tenant; 1 if not named.
-- Beside these: `ready`, the flows that can run now, and their tenants; `held`, the tenants with
-- jobs that wait for room at a gate, or for a handler; `changed`, the tenants whose virtual starts
-- changed; `before`, what the least of those that can run had before anything started since the
-- level was looked at, nil if nothing did; `step`, the least step by which anything that started
-- since then was counted.
function Fairness.new(level, starts, weights)
  return {
    level = level,
    starts = starts,
    weights = weights,
    ready = {},
    held = {},
    changed = {},
    before = nil,
    step = 0,
  }
end

-- The tenant's virtual starts.
function Fairness.of(fairness, tenant)
  return math.max(fairness.starts[tenant] or 0, fairness.level)
end

local function ready_tenants(fairness)
  local tenants = {}
  for _, tenant in pairs(fairness.ready) do
    tenants[tenant] = true
  end
  return tenants
end

local function least_of(fairness, tenants)
  local least
  for tenant in pairs(tenants) do
    local own = Fairness.of(fairness, tenant)
    least = least and math.min(least, own) or own
  end
  return least or fairness.level
end

-- Counts one start of the tenant.
function Fairness.count(fairness, tenant)
  local step = math.floor(1000000 / (fairness.weights[tenant] or 1))
  if fairness.before == nil then
    fairness.before, fairness.step = least_of(fairness, ready_tenants(fairness)), step
  end
  fairness.step = math.min(fairness.step, step)
  fairness.starts[tenant] = Fairness.of(fairness, tenant) + step
  fairness.changed[tenant] = true
end

-- Raises what the tenants have that wait beside those that start. Returns the least of them.
local function raise_held(fairness, waiting, before, after)
  local least = least_of(fairness, waiting)
  local rise = after - math.max(before, least + fairness.step)
  if rise <= 0 then
    return least
  end
  for tenant in pairs(waiting) do
    fairness.starts[tenant] = Fairness.of(fairness, tenant) + rise
    fairness.changed[tenant] = true
  end
  return least + rise
end

-- Raises the level to the least of the tenants that can run or are held.
--
-- A tenant that is held does not keep the level down, and gains nothing by waiting: while others
-- start it rises as they do, so that it is as far behind them as it was, and at least by one start.
-- All that are held rise alike, for they wait beside each other.
function Fairness.raise_level(fairness)
  local before = fairness.before
  if before == nil then
    return
  end
  fairness.before = nil
  local ready, waiting = ready_tenants(fairness), {}
  for tenant in pairs(fairness.held) do
    waiting[tenant] = not ready[tenant] or nil
  end
  local after = least_of(fairness, ready)
  if next(waiting) ~= nil then
    after = math.min(after, raise_held(fairness, waiting, before, after))
  end
  fairness.level = math.max(fairness.level, after)
end

-- A flow that could run cannot any more.
function Fairness.stop(fairness, flow)
  local tenant = fairness.ready[flow]
  if tenant ~= nil then
    Fairness.raise_level(fairness)
    fairness.ready[flow] = nil
    fairness.held[tenant] = true
  end
end
