-- Written by `make lua` from headway.core.gates.view: change that.
-- A gate as one claim sees it: how much room it has now, and the permits taken meanwhile.
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

-- What it can give now, in several takings; `fits` is about one.
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

-- Return whether all that is missing are more permits, for a job that asks for several.
function GateView.is_short_for(self, amount)
  return amount > 1 and not self.shut and amount <= self.most and not GateView.fits(self, amount)
end

-- Return whether it is reserved for the job of this order.
function GateView.is_reserved_for(self, order)
  return self.reserved ~= nil and Python.same(self.reserved.order, order)
end

-- Reserve it for a job for which it is short, unless a job that comes before has it.
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

-- Take an amount that fits; a reservation for the job that takes it is over.
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

-- Take an amount that fits several times over; not of a pool.
function GateView.take_many(self, amount, times)
  if self.free ~= UNLIMITED then
    self.free = self.free - amount * times
  end
end

-- What is free for a job of this order: of each member, or of the gate itself.
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

-- Permits that are kept from a job of this order for one that comes before it.
function GateView.kept_from(self, order)
  local one = self.reserved
  return one ~= nil and order ~= nil and Python.less({ one.order.priority, one.order.due_at, one.order.seq }, { order.priority, order.due_at, order.seq }) and one.amount or 0
end

-- The member of a pool that will first have an amount, and is kept for it.
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
