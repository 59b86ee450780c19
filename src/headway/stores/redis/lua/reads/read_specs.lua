-- The gates as they are declared.
-- needs: reads.snapshot
local ReadSpecs = {}

function ReadSpecs.run(_)
  local snapshot = Snapshot.new()
  Snapshot.templates(snapshot)
  return snapshot.reply
end
