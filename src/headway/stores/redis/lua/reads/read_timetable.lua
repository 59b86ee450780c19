-- All entries of the timetable.
-- needs: reads.snapshot, tables.entries
local ReadTimetable = {}

function ReadTimetable.run(_)
  local reply = Snapshot.new().reply
  reply.entries = Entries.all()
  return reply
end
