-- Written by `make lua` from headway.core.gates.hours: change that.
-- Hours: the local times at which a gate is open, and what they are in absolute time.
--
-- One rule decides everything, changes of the clock included: **an instant is open if and only if
-- the wall clock of the zone, at that instant, shows a time inside a span of the day on which that
-- span begins.** What follows from it when clocks change:
--
-- * Forward (a gap): the times jumped over never are. A span that would open in the gap opens at the
--   end of the gap, one that would close in it closes there, one wholly inside it is not open on
--   that day.
-- * Backward (a fold): times that are passed twice are open, or closed, both times. A span that
--   covers the whole fold is open for the longer time; one that begins or ends inside the fold opens
--   twice: with "00:30-01:30" and clocks set back from 02:00 to 01:00, it is open from 00:30 to
--   01:30 and again from 01:00 to 01:30. Nothing is ever open while the clock shows a time outside.
-- needs: base.python

local Hours = {}

-- Return whether the instant lies in one of the intervals, which are in order.
function Hours.is_open(found, at)
  local index = Python.bisect_right(found, at, 1)
  return index > 0 and at < found[index][2]
end

-- The first open instant that is not before `at`; None if the intervals hold none.
function Hours.next_opening(found, at)
  local index = Python.bisect_right(found, at, 2)
  return index < #found and math.max(at, found[index + 1][1]) or nil
end
