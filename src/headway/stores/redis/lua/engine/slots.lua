-- Slots: permits that are free.
-- needs:

local Slots = {}

-- More permits than anybody asks for.
Slots.UNLIMITED = 2 ^ 62

-- Permits that are free; none, never a negative number, above the capacity (nil: unlimited).
function Slots.room(capacity, used)
  if capacity == nil then
    return Slots.UNLIMITED
  end
  return math.max(0, capacity - used)
end
