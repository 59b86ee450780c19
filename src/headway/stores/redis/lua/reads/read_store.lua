-- Reads other than jobs: gates, lanes, workers, declarations, the trail and counts.
-- needs: base.codec, base.keys, base.time, tables.gates, tables.jobs, tables.lanes
-- needs: tables.counts, tables.workers, tables.declared, tables.trail, reads.snapshot

local ReadStore = {}

-- Return the names of a page, as the view will choose them, and add its rows.
local function page(snapshot, request)
  local rows = Gates.page(request.after, request.limit + 1)
  local last = #rows > request.limit and rows[request.limit].name or nil
  local found, names, reply = {}, {}, {}
  for place, row in ipairs(rows) do
    Snapshot.gate(snapshot, row.name)
    reply[place] = row.name
    if place <= request.limit and row.pool == '' then
      found[row.name] = true
    end
  end
  for name in pairs(Gates.templates()) do
    if Codec.less(request.after, name) and not (last and Codec.less(last, name)) then
      found[name] = true
    end
  end
  for name in pairs(found) do
    names[#names + 1] = name
  end
  table.sort(names, Codec.less)
  snapshot.reply.gate_page = reply
  return names, request.limit
end

-- Read gates by name: these, or a page of those with parked jobs, or of those that are declared or
-- have a row.
function ReadStore.gates(request)
  local snapshot = Snapshot.new()
  Snapshot.templates(snapshot)
  local names, limit = request.names, nil
  if names == nil and request.only_parked then
    names = Jobs.parked_gates(request.after, request.limit)
    snapshot.reply.parked_gates = names
  elseif names == nil then
    names, limit = page(snapshot, request)
  end
  for place, name in ipairs(names) do
    if limit ~= nil and place > limit then
      break
    end
    Snapshot.state(snapshot, name, request)
  end
  return snapshot.reply
end

-- Read the declared gates.
function ReadStore.specs(_)
  local snapshot = Snapshot.new()
  Snapshot.templates(snapshot)
  return snapshot.reply
end

-- Read lanes with their counts, workers and the due time of the oldest waiting job.
function ReadStore.lanes(request)
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

-- Read workers, and how many runs each holds.
function ReadStore.workers(_)
  local reply = Snapshot.new().reply
  reply.workers = Workers.all()
  for _, worker in ipairs(reply.workers) do
    worker.running = Jobs.held_count(worker.id)
  end
  return reply
end

-- Read entries of the timetable by name, or all.
function ReadStore.timetable(request)
  local reply = Snapshot.new().reply
  reply.entries = Declared.entries(request.names)
  return reply
end

-- Read tokens by id, or all.
function ReadStore.tokens(request)
  local reply = Snapshot.new().reply
  reply.tokens = request.ids and Declared.tokens(request.ids) or Declared.all_tokens()
  return reply
end

-- Read a page of the trail, newest first, of one target or all.
function ReadStore.trail(request)
  local reply = Snapshot.new().reply
  reply.trail = Trail.page(request.target, request.before, request.limit)
  return reply
end

-- Read counts of the whole store, and its facts.
function ReadStore.stats(_)
  local reply = Snapshot.new().reply
  reply.states = Counts.of_states()
  reply.totals = Counts.totals()
  reply.facts = {
    identity = redis.call('HGET', Keys.facts, 'identity') or nil,
    epoch = tonumber(redis.call('HGET', Keys.facts, 'epoch') or 1),
    revision = Declared.revision(),
    clock_ahead_ms = Time.ahead_ms(),
  }
  return reply
end
