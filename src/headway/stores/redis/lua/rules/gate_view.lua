-- Written by `make lua` from headway.core.gates.view: change that.
-- A gate as one claim sees it: its free permits, less those that the claim has taken.
-- needs: base.python, rules.pool

local GateView = {}

local UNLIMITED = 4611686018427387904

-- Return whether the amount can be taken now.
function GateView.fits(self, amount, order)
  if self.reserved == nil or order == nil then
    return self.free >= amount
  end
  local is_any = false
  for _, free in ipairs(GateView.frees(self, order)) do
    if free >= amount then
      is_any = true
      break
    end
  end
  return is_any
end

-- Return how much can be taken now in several steps; `fits` is about a single one.
function GateView.total(self, order)
  local value
  if self.free ~= 0 then
    local total = 0
    for _, free in ipairs(GateView.frees(self, order)) do
      total = total + math.max(0, free)
    end
    value = total
  else
    value = 0
  end
  return value
end

-- Return whether the amount is more than the gate could ever give, as it is defined now.
function GateView.never_fits(self, amount)
  return self.most < amount
end

-- Return whether a request for several permits fails only because too few are free.
function GateView.is_short_for(self, amount)
  return amount > 1 and not self.shut and amount <= self.most and not GateView.fits(self, amount)
end

-- Return whether it is reserved for the job of this order.
function GateView.is_reserved_for(self, order)
  return self.reserved ~= nil and Python.same(self.reserved.order, order)
end

-- Reserve it for a job, unless it is reserved for a job that comes before.
function GateView.reserve(self, job, order, amount)
  if self.reserved == nil or Python.less({ order.priority, order.due_at, order.seq }, {
    self.reserved.order.priority,
    self.reserved.order.due_at,
    self.reserved.order.seq,
  }) then
    self.reserved = { job = job, order = order, amount = amount, until_at = 0 }
  end
  return self.reserved.job == job
end

-- Take an amount that fits; a reservation for this job ends.
function GateView.take(self, amount, order)
  if order ~= nil and GateView.is_reserved_for(self, order) then
    self.reserved = nil
  end
  if #self.members == 0 then
    GateView.take_many(self, amount, 1)
    return nil
  end
  local kept = GateView.kept_from(self, order)
  local nearest = kept ~= 0 and GateView.nearest(self, kept) or nil
  if nearest then
    nearest.free = nearest.free - kept
  end
  local member = Pool.choose(self.members, self.strategy, amount, self.last)
  if nearest then
    nearest.free = nearest.free + kept
  end
  member.used = member.used + amount
  member.free = member.free - amount
  self.last = member.name
  local maximum
  for _, one in ipairs(self.members) do
    maximum = maximum and math.max(maximum, one.free) or one.free
  end
  self.free = maximum
  return member.name
end

-- Take an amount several times, which must fit; not for pools.
function GateView.take_many(self, amount, times)
  if self.free ~= UNLIMITED then
    self.free = self.free - amount * times
  end
end

-- Return what is free for a job of this order, for each member or for the gate itself.
function GateView.frees(self, order)
  local kept = GateView.kept_from(self, order)
  if #self.members == 0 or self.free == 0 then
    return { self.free - kept }
  end
  local nearest = kept ~= 0 and GateView.nearest(self, kept) or nil
  local list = {}
  for at, one in ipairs(self.members) do
    list[at] = one.free - (one == nearest and kept or 0)
  end
  return list
end

-- Return how many permits are reserved for a job that comes before this order.
function GateView.kept_from(self, order)
  local one = self.reserved
  return one ~= nil and order ~= nil and Python.less({ one.order.priority, one.order.due_at, one.order.seq }, { order.priority, order.due_at, order.seq }) and one.amount or 0
end

-- Return the pool member that is reserved: the one closest to having the amount free.
function GateView.nearest(self, amount)
  local able = {}
  for _, one in ipairs(self.members) do
    if one.capacity >= amount then
      able[#able + 1] = one
    end
  end
  local list = {}
  for at, one in ipairs(able) do
    list[at] = one.free
  end
  return Python.max(able, list)
end
