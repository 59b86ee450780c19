-- All entries of the timetable.
-- needs: reads.look, tables.entries
local ReadTimetable = {}

function ReadTimetable.run(_)
  local told = Look.new().told
  told.entries = Entries.all()
  return told
end
