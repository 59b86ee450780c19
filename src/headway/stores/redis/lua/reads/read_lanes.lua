-- Lanes, with what they hold, who serves them and since when the oldest waits.
-- needs: reads.look, tables.lanes, tables.counts, tables.workers, tables.jobs
local ReadLanes = {}

function ReadLanes.run(request)
  local look = Look.new()
  local names = request.names or Lanes.names()
  local told = look.told
  local counts, oldest = {}, {}
  for lane, states in pairs(Counts.of_lanes(names)) do
    counts[#counts + 1] = { lane, states }
  end
  for _, name in ipairs(names) do
    Look.lane(look, name)
    Look.gate(look, 'lane:' .. name)
    local due_at = Jobs.oldest_due(name)
    if due_at ~= nil then
      oldest[#oldest + 1] = { name, due_at }
    end
  end
  told.lane_names, told.lane_counts, told.oldest = names, counts, oldest
  told.workers = Workers.all()
  return told
end
