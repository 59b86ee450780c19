-- Workers, and how many runs each holds.
-- needs: reads.snapshot, tables.workers, tables.jobs
local ReadWorkers = {}

function ReadWorkers.run(_)
  local reply = Snapshot.new().reply
  reply.workers = Workers.all()
  for _, worker in ipairs(reply.workers) do
    worker.running = Jobs.held_count(worker.id)
  end
  return reply
end
