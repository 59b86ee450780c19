-- A page of the trail, newest first; of one target, or all of it.
-- needs: reads.look, tables.trail
local ReadTrail = {}

function ReadTrail.run(request)
  local told = Look.new().told
  told.trail = Trail.page(request.target, request.before, request.limit)
  return told
end
