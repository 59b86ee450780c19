-- Pool: one of several Slots; the chosen member is told to the handler.
-- needs:

local Pool = {}

-- The name of the Slots that is one member of a pool.
function Pool.member_gate(pool, member)
  return pool .. '/' .. member
end

-- The first of the members that can give the amount with the smallest measure.
local function least(members, amount, measure)
  local best, smallest
  for place, member in ipairs(members) do
    if member.free >= amount then
      local size = measure(member, place)
      if best == nil or size < smallest then
        best, smallest = member, size
      end
    end
  end
  return best
end

local function share_used(member)
  return member.used / member.capacity
end

-- How far each place is from the turn of the one behind the last chosen.
local function by_turn(members, last)
  local turn = 0
  for place, member in ipairs(members) do
    if member.name == last then
      turn = place
      break
    end
  end
  return function(_, place)
    return (place - 1 - turn) % #members
  end
end

-- The member that gives the permits, with at least `amount` free, or nil if none can.
--   members: in the pool's order.
--   last: the name chosen last, for round_robin; empty at first.
function Pool.choose(members, strategy, amount, last)
  if strategy == 'least_used' then
    return least(members, amount, share_used)
  end
  if strategy == 'round_robin' then
    return least(members, amount, by_turn(members, last))
  end
  return least(members, amount, function()
    return 0
  end)
end
