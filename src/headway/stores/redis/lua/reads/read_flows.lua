-- The flows that wait in a lane, or are parked at a gate, with the ids of the first jobs of each; of a
-- gate also the first of its unfit jobs.
-- needs: reads.snapshot, tables.jobs
local ReadFlows = {}

-- The first unfit jobs of a gate.
local function unfit(gate, limit)
  local ids, rows = Jobs.unfit_at(gate, limit), {}
  local found = Jobs.load(ids)
  for place, id in ipairs(ids) do
    rows[place] = found[id]
  end
  return rows
end

function ReadFlows.run(request)
  local snapshot, flows, numbers = Snapshot.new(), {}, nil
  local gate, first = request.gate, request.first
  if gate then
    numbers = Jobs.parked_flows(gate, request.after, request.limit)
    if request.after < 0 then
      Snapshot.jobs(snapshot, unfit(gate, first))
    end
  else
    numbers = Jobs.flows_waiting(request.lane, request.after, request.limit)
  end
  for place, number in ipairs(numbers) do
    Snapshot.flow(snapshot, number)
    if gate then
      flows[place] = { number, Jobs.parked_ids(gate, number, first), 0 }
    else
      local count = Jobs.waiting_count(number, request.counted)
      flows[place] = { number, Jobs.waiting_ids(number, first), count }
    end
  end
  snapshot.reply.first_of = flows
  return snapshot.reply
end
