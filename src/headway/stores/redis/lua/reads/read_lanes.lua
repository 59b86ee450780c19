-- Lanes, with what they hold, who serves them and since when the oldest waits.
-- needs: reads.snapshot, tables.lanes, tables.counts, tables.workers, tables.jobs
local ReadLanes = {}

function ReadLanes.run(request)
  local snapshot = Snapshot.new()
  local names = request.names or Lanes.names()
  local reply = snapshot.reply
  local counts, oldest = {}, {}
  for lane, states in pairs(Counts.of_lanes(names)) do
    counts[#counts + 1] = { lane, states }
  end
  for _, name in ipairs(names) do
    Snapshot.lane(snapshot, name)
    Snapshot.gate(snapshot, 'lane:' .. name)
    local due_at = Jobs.oldest_due(name)
    if due_at ~= nil then
      oldest[#oldest + 1] = { name, due_at }
    end
  end
  reply.lane_names, reply.lane_counts, reply.oldest = names, counts, oldest
  reply.workers = Workers.all()
  return reply
end
