-- Beat: extend a worker's leases, and return which runs are lost or should be cancelled.
-- needs: base.codec, base.time, base.write, tables.jobs, tables.workers, rules.attempts
-- needs: rules.moves, engine.step
local Beat = {}

local function place_of(job, run)
  return job .. ':' .. Codec.digits(run)
end

-- Return the worker's row; a worker whose lease has ended loses its runs.
local function revive(step, id)
  local worker = Workers.load(id) or Workers.new(id)
  if worker.lease_until <= Time.now and not worker.lapsed then
    Attempts.lapse(step, worker)
    Step.flush(step)
  end
  return worker
end

-- Requeue runs whose claim's reply never reached the worker, without using their attempts.
local function release_unused(step, request, held)
  local listed, unused = {}, {}
  for _, one in ipairs(request.running) do
    listed[place_of(one[1], one[2])] = true
  end
  for _, one in ipairs(held) do
    if
      not listed[place_of(one.id, one.run)]
      and one.state == 'running'
      and (one.request <= request.request or request.leaving)
    then
      unused[#unused + 1] = one.id
    end
  end
  Step.load(step, unused)
  for _, id in ipairs(unused) do
    local row = step.rows[id]
    if row.state == 'running' then
      Moves.requeue(step, row, 'unused', nil, true, '')
    end
  end
end

local function note_progress(step, request, held)
  local live, ids = {}, {}
  for _, one in ipairs(request.progress) do
    if held[place_of(one[1], one[2])] then
      live[#live + 1] = one
      ids[#ids + 1] = one[1]
    end
  end
  Step.load(step, ids)
  for _, one in ipairs(live) do
    local row = step.rows[one[1]]
    row.progress = one[3]
    Step.changed(step, row)
  end
end

local function keep_lease(step, worker, request)
  if request.name ~= '' then
    worker.name = request.name
  end
  if #request.lanes > 0 then
    worker.lanes = request.lanes
  end
  worker.seen_at = Time.now
  worker.lease_until = request.leaving and Time.now or Time.now + request.lease_ms
  worker.lapsed = request.leaving
  if request.leaving then
    -- Runs that it has just released are not lost with the rest.
    Step.flush(step)
    Attempts.lapse(step, worker)
  end
  Workers.save(worker)
end

-- Extend the worker's leases. Return {lease_until, lost, cancel}, with runs as {job, run}.
function Beat.run(request)
  Write.freely()
  Time.keep()
  local step = Step.new()
  local worker = revive(step, request.worker)
  local rows, held = Jobs.held_by(request.worker), {}
  for _, one in ipairs(rows) do
    held[place_of(one.id, one.run)] = one
  end
  release_unused(step, request, rows)
  note_progress(step, request, held)
  keep_lease(step, worker, request)
  Step.flush(step)
  local lost, cancel = {}, {}
  for _, key in ipairs(request.running) do
    local one = held[place_of(key[1], key[2])]
    if one == nil then
      lost[#lost + 1] = key
    elseif one.cancel_requested then
      cancel[#cancel + 1] = key
    end
  end
  return { lease_until = worker.lease_until, lost = lost, cancel = cancel }
end
