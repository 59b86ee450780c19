-- Read the whole store in pages: for an audit, and for an export.
-- needs: base.codec, tables.gates, tables.permits, tables.starts, tables.jobs, tables.lanes
-- needs: tables.dedupe, tables.signals, tables.declared, tables.trail, tables.counts, reads.snapshot

local ReadPages = {}

-- Add permits and starts of a gate, counted from their rows.
local function count(snapshot, row)
  local reply = snapshot.reply
  local permits, amount = Permits.count(row.name)
  reply.permits[#reply.permits + 1] = { row.name, permits, amount, {} }
  reply.starts[#reply.starts + 1] = { row.name, Starts.total(row.name, -1), false }
end

local function add_gates(snapshot, after, limit)
  local reply = snapshot.reply
  local rows, sums = Gates.page(after, limit), Permits.sums(after, limit)
  local names = Codec.fields(sums, 1)
  local known = Gates.load(names)
  for place, row in ipairs(rows) do
    reply.gate_page[place] = row.name
    known[row.name] = row
    count(snapshot, row)
  end
  for name, row in pairs(known) do
    reply.gates[#reply.gates + 1] = { name, row }
  end
  for _, name in ipairs(names) do
    if known[name] == nil then
      reply.gates[#reply.gates + 1] = { name, false }
    end
  end
  reply.sums = sums
  return #rows
end

local function add_permits(snapshot, after, limit)
  -- The last one: a gate's name may contain it, too.
  local gate, job = after:match('^(.*)\031(.*)$')
  local rows = Permits.page({ gate or '', job or '' }, limit)
  Snapshot.jobs(snapshot, Jobs.in_order(Codec.fields(rows, 'job')))
  snapshot.reply.permit_page = rows
  return #rows
end

local function add_held(snapshot, after, limit)
  local rows = Jobs.held(after, limit)
  Snapshot.jobs(snapshot, rows, 'held')
  snapshot.reply.permits_of_held = Permits.of_jobs(Codec.fields(rows, 'id'))
  return #rows
end

local AUDITED = {
  { 'gates', add_gates },
  { 'permits', add_permits },
  { 'held', add_held },
}

-- Read parts of an audit; they share one limit, and the next part starts while some of it is left.
function ReadPages.audit(request)
  local snapshot = Snapshot.new()
  local reply = snapshot.reply
  reply.gate_page, reply.gates, reply.permits, reply.starts = {}, {}, {}, {}
  Snapshot.templates(snapshot)
  local left, begun = request.limit, false
  for _, part in ipairs(AUDITED) do
    if begun or part[1] == request.part then
      local found = part[2](snapshot, begun and '' or request.after, math.max(1, left))
      begun, left = true, left - found
      if left <= 0 and found > 0 then
        break
      end
    end
  end
  return reply
end

local EXPORTED = {}

function EXPORTED.templates(snapshot, _)
  Snapshot.templates(snapshot)
end

function EXPORTED.gates(snapshot, request)
  local reply = snapshot.reply
  reply.gate_page, reply.gates, reply.every_start = {}, {}, {}
  for place, row in ipairs(Gates.page(request.after or '', request.limit)) do
    reply.gate_page[place] = row.name
    reply.gates[place] = { row.name, row }
    reply.every_start[place] = { row.name, Starts.oldest(row.name, 0, request.most) }
  end
end

function EXPORTED.lanes(snapshot, _)
  local reply = snapshot.reply
  reply.lane_names, reply.tenant_starts = Lanes.names(), {}
  for place, name in ipairs(reply.lane_names) do
    Snapshot.lane(snapshot, name)
    reply.tenant_starts[place] = { name, Lanes.all_tenant_starts(name) }
  end
end

function EXPORTED.entries(snapshot, _)
  snapshot.reply.entries = Declared.entries()
end

function EXPORTED.tokens(snapshot, _)
  snapshot.reply.tokens = Declared.all_tokens()
end

-- Return the keys that jobs still have.
local function keys_of(rows)
  local found = {}
  for _, row in ipairs(rows) do
    local known = row.key and Dedupe.get(row.tenant, row.key)
    if known then
      found[#found + 1] = known
    end
  end
  return found
end

function EXPORTED.jobs(snapshot, request)
  local rows = Jobs.arrived(request.after or 0, request.limit)
  local ids = Codec.fields(rows, 'id')
  Snapshot.jobs(snapshot, rows)
  Snapshot.runs(snapshot, ids)
  snapshot.reply.permits_of_held = Permits.of_jobs(ids)
  snapshot.reply.dedupe = keys_of(rows)
end

function EXPORTED.known(snapshot, request)
  snapshot.reply.known = Signals.all_known(request.after or '', request.limit)
end

function EXPORTED.events(snapshot, request)
  snapshot.reply.events = Signals.all_received(request.after or { '', '' }, request.limit)
end

function EXPORTED.trail(snapshot, request)
  snapshot.reply.since = Trail.since(request.after or 0, request.limit)
end

function EXPORTED.totals(snapshot, _)
  snapshot.reply.totals = Counts.totals()
end

-- Read the rows of `part` after `after` (nil for the first), up to `limit` if it has pages.
function ReadPages.chunk(request)
  local snapshot = Snapshot.new()
  EXPORTED[request.part](snapshot, request)
  return snapshot.reply
end
