-- One job with its runs and trail.
-- needs: reads.look, tables.jobs, tables.trail
local ReadJob = {}

function ReadJob.run(request)
  local look = Look.new()
  local row = Jobs.load({ request.id })[request.id]
  if row == nil then
    return look.told
  end
  Look.jobs(look, { row })
  Look.runs(look, { row.id })
  Look.known(look, { row.id })
  Look.notes(look, row.id, request.notes)
  if row.state == 'waiting' then
    Look.gates_of(look, Look.flow(look, row.flow))
  end
  return look.told
end
