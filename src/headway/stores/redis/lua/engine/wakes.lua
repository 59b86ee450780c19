-- Wakes: which lanes to wake after the step, and from when.
-- needs: base.time
local Wakes = {}

local sent = {}
-- The moments by lane; "" stands for any lane, because no lane is empty.
local by_lane = {}

-- After the step, wakes those who wait for this lane (nil: for any), from a moment on (nil: now).
--
-- A woken waiter claims, and learns of later moments then; so the first of each lane is enough.
function Wakes.wake(lane, at)
  if at == nil or at <= Time.now then
    at = false
  end
  local one = by_lane[lane or '']
  if one == nil then
    one = { lane or false, at }
    by_lane[lane or ''] = one
    sent[#sent + 1] = one
  elseif not at or (one[2] and at < one[2]) then
    one[2] = at
  end
end

-- What was sent: {lane or false, moment or false} each, in the order sent.
function Wakes.list()
  return sent
end
