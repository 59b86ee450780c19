-- Workers, and how many runs each holds.
-- needs: reads.look, tables.workers, tables.jobs
local ReadWorkers = {}

function ReadWorkers.run(_)
  local told = Look.new().told
  told.workers = Workers.all()
  for _, worker in ipairs(told.workers) do
    worker.running = Jobs.held_count(worker.id)
  end
  return told
end
