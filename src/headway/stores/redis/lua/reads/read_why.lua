-- Why a job is not running: the job, its gates and who holds them, its place, its lane's workers.
-- needs: base.keys, reads.snapshot, tables.jobs, tables.workers, rules.cascade, engine.states
local ReadWhy = {}

-- The gates of a use: one, or that of each candidate who may be asked next.
local function names_of(use, row, limit)
  if not use.name:find('{candidate}', 1, true) then
    return { use.name }
  end
  local names = {}
  for place, candidate in ipairs(row.cascade and Cascade.order(row.cascade) or {}) do
    if place <= limit then
      names[place] = Cascade.in_turn(use, candidate).name
    end
  end
  return names
end

local function look_at_gates(snapshot, row, request)
  local flow = Snapshot.flow(snapshot, row.flow)
  Snapshot.templates(snapshot)
  Snapshot.gates_of(snapshot, flow)
  for _, name in ipairs({ 'all', 'lane:' .. flow.lane, 'tenant:' .. flow.tenant, 'kind:' .. flow.kind }) do
    Snapshot.state(snapshot, name, request)
  end
  for _, uses in ipairs({ flow.shared, row.keyed }) do
    for _, use in ipairs(uses) do
      for _, name in ipairs(names_of(use, row, request.candidates)) do
        Snapshot.state(snapshot, name, request)
      end
    end
  end
end

function ReadWhy.run(request)
  local snapshot = Snapshot.new()
  local row = Jobs.load({ request.id })[request.id]
  if row == nil then
    return snapshot.reply
  end
  Snapshot.jobs(snapshot, { row })
  snapshot.reply.workers = Workers.all()
  if States.QUEUED[row.state] then
    local suspect = redis.call('HGET', Keys.facts, 'suspect')
    snapshot.reply.facts = { suspect = suspect and cmsgpack.unpack(suspect) or nil }
    look_at_gates(snapshot, row, request)
  end
  if row.state == 'waiting' then
    local order = { priority = row.priority, due_at = row.due_at, seq = row.seq }
    snapshot.reply.place = Jobs.place(row.flow, order, request.places)
  end
  return snapshot.reply
end
