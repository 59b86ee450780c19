-- Wakes: whom to wake after the step, each once, in the order told.
-- needs: base.time
local Wakes = {}

local told = {}
local known = {}

-- After the step, wakes those who wait for this lane (nil: for any), from a moment on (nil: now).
function Wakes.wake(lane, at)
  if at ~= nil and at <= Time.now then
    at = nil
  end
  local place = (at and string.format('%.0f', at) or '') .. (lane and ':' .. lane or '')
  if not known[place] then
    known[place] = true
    told[#told + 1] = { lane or false, at or false }
  end
end

-- What was told: {lane or false, moment or false} each.
function Wakes.list()
  return told
end
