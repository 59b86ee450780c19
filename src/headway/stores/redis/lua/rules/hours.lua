-- Written by `make lua` from headway.core.gates.hours: change that.
-- Opening hours of a gate: local times, and the intervals of absolute time they correspond to.
--
-- One rule covers everything, including clock changes: **an instant is open if and only if the wall
-- clock of the zone, at that instant, shows a time inside a span of the day on which that span
-- starts.** Its consequences when clocks change:
--
-- * Forward (a gap): the times jumped over never occur. A span that would open in the gap opens at the
--   end of the gap, one that would close in it closes there, and one entirely inside it is not open
--   on that day.
-- * Backward (a fold): times that occur twice are open, or closed, both times. A span that covers the
--   whole fold is open for longer; one that starts or ends inside the fold opens twice: with
--   "00:30-01:30" and clocks set back from 02:00 to 01:00, it is open from 00:30 to 01:30 and again
--   from 01:00 to 01:30. The hours are never open while the clock shows a time outside the spans.
-- needs: base.python

local Hours = {}

-- Return whether an instant is in one of the intervals, which are in order.
function Hours.is_open(found, at)
  local index = Python.bisect_right(found, at, 1)
  return index > 0 and at < found[index][2]
end

-- Return the first open instant not before `at`; None if there is none in the intervals.
function Hours.next_opening(found, at)
  local index = Python.bisect_right(found, at, 2)
  return index < #found and math.max(at, found[index + 1][1]) or nil
end
