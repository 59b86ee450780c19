-- A gate as one claim sees it: how much room it has now, and the permits taken meanwhile.
-- needs: base.order, engine.pool, engine.slots

local GateView = {}

-- How long a gate is reserved after a claim last found that the job cannot start yet.
GateView.RESERVED_MS = 60000

-- A view that is open and unlimited; the book narrows it.
--   kind: nil for an implicit gate that is only open or closed.
-- Its fields: `most`, the largest amount it could ever give at once; `free`, what it can give now;
-- `shut`, that it is closed, or outside its hours, and not merely full; `opens_at`, when it opens by itself; `members`, `strategy` and `last` of a pool; `counted`, of a
-- rate, the starts in the window when it was looked at; `reserved`, for whom it is reserved: {job,
-- order, amount, until_at}.
--   template: under which it is declared; '' for an implicit gate.
function GateView.new(name, kind, template)
  return {
    name = name,
    kind = kind,
    template = template or '',
    most = Slots.UNLIMITED,
    free = Slots.UNLIMITED,
    shut = false,
    opens_at = nil,
    members = {},
    strategy = 'least_used',
    last = '',
    counted = 0,
  }
end

-- Permits that are kept from a job of this order (nil: none) for one that comes before it.
function GateView.kept_from(view, order)
  local one = view.reserved
  return one and order and Order.before(one.order, order) and one.amount or 0
end

-- The member of a pool that will first have an amount, and is kept for it.
local function nearest(view, amount)
  local best
  for _, one in ipairs(view.members) do
    if one.capacity >= amount and (best == nil or one.free > best.free) then
      best = one
    end
  end
  return best
end

-- What is free for a job of this order: of each member, or of the gate itself.
local function frees(view, order)
  local kept, free = GateView.kept_from(view, order), {}
  if #view.members == 0 or view.free == 0 then
    return { view.free - kept }
  end
  local near = kept > 0 and nearest(view, kept) or nil
  for place, one in ipairs(view.members) do
    free[place] = one.free - (one == near and kept or 0)
  end
  return free
end

-- Whether the amount can be taken now.
--   order: of the job that asks; nil asks as if nothing were reserved.
function GateView.fits(view, amount, order)
  if not (view.reserved and order) then
    return view.free >= amount
  end
  for _, free in ipairs(frees(view, order)) do
    if free >= amount then
      return true
    end
  end
  return false
end

-- What it can give now, in several takings; `fits` is about one.
--   order: as above.
function GateView.total(view, order)
  if view.free == 0 then
    return 0
  end
  local total = 0
  for _, free in ipairs(frees(view, order)) do
    total = total + math.max(0, free)
  end
  return total
end

-- Whether all that is missing are more permits, for a job that asks for several.
function GateView.is_short_for(view, amount)
  return amount > 1 and amount <= view.most and not view.shut and not GateView.fits(view, amount)
end

-- Whether it is reserved for the job of this order.
function GateView.is_reserved_for(view, order)
  return view.reserved ~= nil and Order.same(view.reserved.order, order)
end

-- Reserves it for a job for which it is short, unless a job that comes before has it. Returns
-- whether it is reserved for this job now.
function GateView.reserve(view, job, order, amount)
  if view.reserved == nil or Order.before(order, view.reserved.order) then
    view.reserved = { job = job, order = order, amount = amount, until_at = 0 }
  end
  return view.reserved.job == job
end

-- Whether the amount is more than the gate could ever give, as it is defined now.
function GateView.never_fits(view, amount)
  return view.most < amount
end

-- Takes an amount that fits; the member chosen, of a pool, else nil. A reservation for the job that
-- takes it is over.
--   order: of the job.
function GateView.take(view, amount, order)
  if order and GateView.is_reserved_for(view, order) then
    view.reserved = nil
  end
  if view.kind ~= 'pool' then
    GateView.take_many(view, amount, 1)
    return nil
  end
  local kept = GateView.kept_from(view, order)
  local near = kept > 0 and nearest(view, kept) or nil
  if near then
    near.free = near.free - kept
  end
  local member = Pool.choose(view.members, view.strategy, amount, view.last)
  if near then
    near.free = near.free + kept
  end
  member.used = member.used + amount
  member.free = member.free - amount
  view.last = member.name
  view.free = 0
  for _, one in ipairs(view.members) do
    view.free = math.max(view.free, one.free)
  end
  return member.name
end

-- Takes an amount that fits several times over; not of a pool.
function GateView.take_many(view, amount, times)
  if view.free ~= Slots.UNLIMITED then
    view.free = view.free - amount * times
  end
end
