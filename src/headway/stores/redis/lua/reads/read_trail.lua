-- A page of the trail, newest first; of one target, or all of it.
-- needs: reads.snapshot, tables.trail
local ReadTrail = {}

function ReadTrail.run(request)
  local reply = Snapshot.new().reply
  reply.trail = Trail.page(request.target, request.before, request.limit)
  return reply
end
