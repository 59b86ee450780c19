-- One job with its runs and trail.
-- needs: reads.snapshot, tables.jobs, tables.trail
local ReadJob = {}

function ReadJob.run(request)
  local snapshot = Snapshot.new()
  local row = Jobs.load({ request.id })[request.id]
  if row == nil then
    return snapshot.reply
  end
  Snapshot.jobs(snapshot, { row })
  Snapshot.runs(snapshot, { row.id })
  Snapshot.known(snapshot, { row.id })
  Snapshot.notes(snapshot, row.id, request.notes)
  if row.state == 'waiting' then
    Snapshot.gates_of(snapshot, Snapshot.flow(snapshot, row.flow))
  end
  return snapshot.reply
end
