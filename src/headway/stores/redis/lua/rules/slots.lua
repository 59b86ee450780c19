-- Written by `make lua` from headway.core.gates.slots: change that.
-- Slots: a counting semaphore. A lock is a Slots of one permit.

local Slots = {}

local UNLIMITED = 4611686018427387904

-- Return the number of free permits; 0 if more than the capacity are used.
function Slots.room(capacity, used)
  return capacity == nil and UNLIMITED or math.max(0, capacity - used)
end
