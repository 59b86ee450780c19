-- A gate as one claim sees it: how much room it has now, and the permits taken meanwhile.
-- needs: engine.pool, engine.slots

local GateView = {}

-- A view that is open and unlimited; the book narrows it.
--   kind: nil for an implicit gate that is only open or closed.
-- Its fields: `most`, the largest amount it could ever give at once; `free`, what it can give now;
-- `shut`, that it is closed, or outside its hours, and not merely full; `opens_at`, when it opens by itself; `members`, `strategy` and `last` of a pool; `counted`, of a
-- rate, the starts in the window when it was looked at.
function GateView.new(name, kind)
  return {
    name = name,
    kind = kind,
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

-- Whether the amount can be taken now.
function GateView.fits(view, amount)
  return view.free >= amount
end

-- What it can give now, in several takings; `free` is what it can give in one.
function GateView.total(view)
  if view.free == 0 or #view.members == 0 then
    return view.free
  end
  local total = 0
  for _, one in ipairs(view.members) do
    total = total + one.free
  end
  return total
end

-- Whether the amount is more than the gate could ever give, as it is defined now.
function GateView.never_fits(view, amount)
  return view.most < amount
end

-- Takes an amount that fits; the member chosen, of a pool, else nil.
function GateView.take(view, amount)
  if view.kind ~= 'pool' then
    GateView.take_many(view, amount, 1)
    return nil
  end
  local member = Pool.choose(view.members, view.strategy, amount, view.last)
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
