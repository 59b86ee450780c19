-- Reads of jobs: one job, a page of a listing, why a job is not running, and waiting flows.
-- needs: base.codec, base.keys, tables.jobs, tables.dedupe, tables.workers
-- needs: rules.cascade, rules.state, reads.snapshot

local ReadJobs = {}

-- Read one job with its runs and trail.
function ReadJobs.job(request)
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

-- Rows fetched at once: few for a small page without filters, but not too few.
local FEWEST, MOST = 100, 500
local ENDED_BADLY = { dead = true, cancelled = true }

-- Return the next ids after a seq, by the index that fits the query best.
local function walk(request, after, limit)
  if request.subject ~= nil then
    return Jobs.about(request.tenant, request.subject, after, limit, request.newest)
  end
  local states = request.states
  local only = states ~= nil and #states == 1 and states[1]
  if ENDED_BADLY[only] then
    return Jobs.ended_badly(only, after, limit, request.newest)
  end
  if only == 'awaiting' then
    return Jobs.awaiting(after, limit, request.newest)
  end
  return Jobs.walk(after, limit, request.newest)
end

-- Return a function that matches a glance against the query; each flow is checked once.
local function filter(request)
  local states, flows = nil, {}
  if request.states ~= nil then
    states = {}
    for _, state in ipairs(request.states) do
      states[state] = true
    end
  end
  local function fits(number)
    local flow = Jobs.flow(number)
    return (request.lane == nil or flow.lane == request.lane)
      and (request.tenant == nil or flow.tenant == request.tenant)
      and (request.kind == nil or flow.kind == request.kind)
  end
  return function(seen)
    if states ~= nil and not states[seen.state] then
      return false
    end
    if flows[seen.flow] == nil then
      flows[seen.flow] = fits(seen.flow)
    end
    return flows[seen.flow]
  end
end

-- Return the rows of a page and its cursor; fewer rows if jobs are large. As `read_until_large` of
-- stores/ledger/paging.py.
local function load(request, ids, cursor)
  local rows, size, at_once = {}, 0, request.at_once
  while #rows < #ids do
    if size > request.most_bytes then
      return rows, Codec.digits(rows[#rows].seq)
    end
    local part = { unpack(ids, #rows + 1, math.min(#rows + at_once, #ids)) }
    for _, row in ipairs(Jobs.in_order(part)) do
      rows[#rows + 1] = row
      size = size + #row.args + #(row.result or '') + #(row.progress or '')
    end
    local fits = size * #ids <= request.most_bytes * #rows
    at_once = fits and #ids or request.at_once
  end
  return rows, cursor
end

-- Return the rows of a page, by arrival or in reverse, and the cursor; nil at the end.
--   request: returns up to `limit` rows, and examines up to `most_examined`.
local function page(request)
  local wanted, looked, last = {}, 0, request.after
  local matches = filter(request)
  local chunk = math.min(MOST, math.max(FEWEST, request.limit + 1))
  while true do
    local ids = walk(request, last, chunk)
    for _, seen in ipairs(Jobs.glance(ids)) do
      if #wanted == request.limit or looked == request.most_examined then
        return load(request, wanted, Codec.digits(last))
      end
      looked, last = looked + 1, seen.seq
      if matches(seen) then
        wanted[#wanted + 1] = seen.id
      end
    end
    if #ids < chunk then
      return load(request, wanted, nil)
    end
  end
end

local function by_key(snapshot, tenant, key)
  local known = Dedupe.get(tenant, key)
  snapshot.reply.dedupe = { known }
  return known and Jobs.in_order({ known.job }) or {}
end

-- Read a page of a listing of jobs.
function ReadJobs.page(request)
  local snapshot = Snapshot.new()
  local rows, cursor
  if request.ids ~= nil then
    rows = Jobs.in_order(request.ids)
  elseif request.key ~= nil then
    rows = by_key(snapshot, request.tenant, request.key)
  elseif request.worker ~= nil then
    rows = Jobs.held_by(request.worker, request.limit)
  else
    rows, cursor = page(request)
  end
  Snapshot.jobs(snapshot, rows)
  snapshot.reply.cursor = cursor
  local ids = Codec.fields(rows, 'id')
  if request.notes ~= nil then
    for _, id in ipairs(ids) do
      Snapshot.notes(snapshot, id, request.notes)
    end
  end
  if request.runs then
    Snapshot.runs(snapshot, ids)
    Snapshot.known(snapshot, ids)
  end
  return snapshot.reply
end

-- Return the gates of a use: one, or one for each candidate that may be next.
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

local function add_gates(snapshot, row, request)
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

-- Read why a job is not running: the job, its gates and their holders, its place, its lane's
-- workers.
function ReadJobs.why(request)
  local snapshot = Snapshot.new()
  local row = Jobs.load({ request.id })[request.id]
  if row == nil then
    return snapshot.reply
  end
  Snapshot.jobs(snapshot, { row })
  snapshot.reply.workers = Workers.all()
  if State.QUEUED[row.state] then
    local suspect = redis.call('HGET', Keys.facts, 'suspect')
    snapshot.reply.facts = { suspect = suspect and cmsgpack.unpack(suspect) or nil }
    add_gates(snapshot, row, request)
  end
  if row.state == 'waiting' then
    local order = { priority = row.priority, due_at = row.due_at, seq = row.seq }
    snapshot.reply.place = Jobs.place(row.flow, order, request.places)
  end
  return snapshot.reply
end

-- Read the flows that wait in a lane, or are parked at a gate, with the ids of the first jobs of
-- each; for a gate also its first unfit jobs.
function ReadJobs.flows(request)
  local snapshot, flows, numbers = Snapshot.new(), {}, nil
  local gate, first = request.gate, request.first
  if gate then
    numbers = Jobs.parked_flows(gate, request.after, request.limit)
    if request.after < 0 then
      Snapshot.jobs(snapshot, Jobs.in_order(Jobs.unfit_at(gate, 2 ^ 31 - 1, first)))
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
