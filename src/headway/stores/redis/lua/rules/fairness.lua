-- Written by `make lua` from headway.core.fairness: change that.
-- Fairness: between the tenants of a lane, and between the lanes of a claim.
-- needs: base.python

local Fairness = {}

local _least

-- Its place among the tenants, least first.
--
-- Among those at the level, the one that had less before the level rose goes first; otherwise
-- the one with the oldest jobs would go first each time.
function Fairness.rank(self, tenant)
  local own = self.starts[tenant] or 0
  return { math.max(own, self.level), own }
end

-- The tenant's virtual starts.
function Fairness.of(self, tenant)
  return math.max(self.starts[tenant] or 0, self.level)
end

-- Count one start of the tenant.
function Fairness.count(self, tenant)
  local step = math.floor(1000000 / (self.weights[tenant] or 1))
  if self.before == nil then
    local set = {}
    for _, one in pairs(self.ready) do
      set[one] = true
    end
    self.before, self.step = _least(self, set), step
  end
  self.step = math.min(self.step, step)
  self.starts[tenant] = Fairness.of(self, tenant) + step
  self.changed[tenant] = true
end

-- A flow that could run cannot any more.
function Fairness.stop(self, flow)
  if self.ready[flow] ~= nil then
    Fairness.raise_level(self)
    local taken = self.ready[flow]
    self.ready[flow] = nil
    self.held[taken] = true
  end
end

-- Raise the level to the least of the tenants that can run or are held.
--
-- A tenant that is held does not keep the level down, and gains nothing by waiting: while
-- others start it rises as they do, so that it is as far behind them as it was, and at least
-- by one start. All that are held rise alike, for they wait beside each other.
function Fairness.raise_level(self)
  if self.before == nil then
    return
  end
  local before
  before, self.before = self.before, nil
  local ready = {}
  for _, one in pairs(self.ready) do
    ready[one] = true
  end
  local after = _least(self, ready)
  local waiting = Python.minus(self.held, ready)
  if next(waiting) ~= nil then
    local least = _least(self, waiting)
    local rise = after - math.max(before, least + self.step)
    if rise > 0 then
      for tenant in pairs(waiting) do
        self.starts[tenant] = Fairness.of(self, tenant) + rise
      end
      for one in pairs(waiting) do
        self.changed[one] = true
      end
      least = least + rise
    end
    after = math.min(after, least)
  end
  self.level = math.max(self.level, after)
end

function _least(self, tenants)
  local least
  for tenant in pairs(tenants) do
    local measure = Fairness.of(self, tenant)
    if least == nil or measure < least then
      least = measure
    end
  end
  if least == nil then
    least = self.level
  end
  return least
end
