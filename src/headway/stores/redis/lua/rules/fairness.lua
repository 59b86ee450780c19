-- Written by `make lua` from headway.core.fairness: change that.
-- Fairness: between the tenants of a lane, and between the lanes of a claim.
-- needs: base.python

local Fairness = {}

-- Return the sort key of a tenant; the lowest goes first.
--
-- Among the tenants at the level, the one that had less before the level rose goes first;
-- otherwise the tenant with the oldest jobs would go first each time.
function Fairness.rank(self, tenant)
  local own = self.starts[tenant] or 0
  return { math.max(own, self.level), own }
end

-- Return the tenant's virtual starts, at least the level.
function Fairness.of(self, tenant)
  return math.max(self.starts[tenant] or 0, self.level)
end

-- Count a start of the tenant.
function Fairness.count(self, tenant)
  local step = math.floor(1000000 / (self.weights[tenant] or 1))
  if self.before == nil then
    self.before, self.step = Fairness.least(self, Python.values(self.ready)), step
  end
  self.step = math.min(self.step, step)
  self.starts[tenant] = Fairness.of(self, tenant) + step
  self.changed[tenant] = true
end

-- Mark a flow that can no longer run; its tenant is held.
function Fairness.stop(self, flow)
  if self.ready[flow] ~= nil then
    Fairness.raise_level(self)
    self.held[Python.pop(self.ready, flow)] = true
  end
end

-- Raise the level to the lowest virtual starts of the ready and held tenants.
--
-- A held tenant does not keep the level down, and gains nothing by waiting: while others
-- start, its virtual starts rise with theirs, so that it stays as far behind as it was, and
-- at least one start behind. All held tenants rise by the same amount, since they wait at the
-- same time.
function Fairness.raise_level(self)
  if self.before == nil then
    return
  end
  local before
  before, self.before = self.before, nil
  local ready = Python.values(self.ready)
  local after = Fairness.least(self, ready)
  local waiting = Python.minus(self.held, ready)
  if next(waiting) ~= nil then
    local least = Fairness.least(self, waiting)
    local rise = after - math.max(before, least + self.step)
    if rise > 0 then
      for tenant in pairs(waiting) do
        self.starts[tenant] = Fairness.of(self, tenant) + rise
        self.changed[tenant] = true
      end
      least = least + rise
    end
    after = math.min(after, least)
  end
  self.level = math.max(self.level, after)
end

function Fairness.least(self, tenants)
  local minimum
  for tenant in pairs(tenants) do
    local value = Fairness.of(self, tenant)
    minimum = minimum and math.min(minimum, value) or value
  end
  return minimum or self.level
end
