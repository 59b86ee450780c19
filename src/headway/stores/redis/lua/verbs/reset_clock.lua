-- The store's time is set back to its clock; every lease ends, because its end lies ahead.
-- needs: base.time, base.write, engine.epochs
local ResetClock = {}

-- Begins a new epoch at the clock's time. Returns by how many ms the time went back.
function ResetClock.run(request)
  local ahead = Time.ahead_ms()
  Write.freely()
  Time.turn_back()
  Epochs.begin(request.author, request.reason)
  return ahead
end
