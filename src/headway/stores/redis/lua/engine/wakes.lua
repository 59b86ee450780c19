-- Wakes: whom to wake after the step, and from when.
-- needs: base.time
local Wakes = {}

local told = {}
-- What is told of each lane; "" for any, for no lane is empty.
local by_lane = {}

-- After the step, wakes those who wait for this lane (nil: for any), from a moment on (nil: now).
--
-- Whoever wakes claims, and hears of later moments then; so the first of each lane is enough.
function Wakes.wake(lane, at)
  if at == nil or at <= Time.now then
    at = false
  end
  local one = by_lane[lane or '']
  if one == nil then
    one = { lane or false, at }
    by_lane[lane or ''] = one
    told[#told + 1] = one
  elseif not at or (one[2] and at < one[2]) then
    one[2] = at
  end
end

-- What was told: {lane or false, moment or false} each, in the order told.
function Wakes.list()
  return told
end
