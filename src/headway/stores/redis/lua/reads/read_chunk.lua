-- A chunk of an export: the rows of one part, after a place in it.
-- needs: reads.snapshot, tables.jobs, tables.gates, tables.permits, tables.starts, tables.lanes
-- needs: tables.dedupe, tables.signals, tables.entries, tables.tokens, tables.trail, tables.counts
local ReadChunk = {}

local PARTS = {}

function PARTS.templates(snapshot, _)
  Snapshot.templates(snapshot)
end

function PARTS.gates(snapshot, request)
  local reply = snapshot.reply
  reply.gate_page, reply.gates, reply.every_start = {}, {}, {}
  for place, row in ipairs(Gates.page(request.after or '', request.limit)) do
    reply.gate_page[place] = row.name
    reply.gates[place] = { row.name, row }
    reply.every_start[place] = { row.name, Starts.oldest(row.name, 0, request.most) }
  end
end

function PARTS.lanes(snapshot, _)
  local reply = snapshot.reply
  reply.lane_names, reply.tenant_starts = Lanes.names(), {}
  for place, name in ipairs(reply.lane_names) do
    Snapshot.lane(snapshot, name)
    reply.tenant_starts[place] = { name, Lanes.all_tenant_starts(name) }
  end
end

function PARTS.entries(snapshot, _)
  snapshot.reply.entries = Entries.all()
end

function PARTS.tokens(snapshot, _)
  snapshot.reply.tokens = Tokens.all()
end

-- The keys that jobs still have.
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

function PARTS.jobs(snapshot, request)
  local rows, ids = Jobs.arrived(request.after or 0, request.limit), {}
  for place, row in ipairs(rows) do
    ids[place] = row.id
  end
  Snapshot.jobs(snapshot, rows)
  Snapshot.runs(snapshot, ids)
  snapshot.reply.permits_of_held = Permits.of_jobs(ids)
  snapshot.reply.dedupe = keys_of(rows)
end

function PARTS.known(snapshot, request)
  snapshot.reply.known = Signals.all_known(request.after or '', request.limit)
end

function PARTS.events(snapshot, request)
  snapshot.reply.events = Signals.all_heard(request.after or { '', '' }, request.limit)
end

function PARTS.trail(snapshot, request)
  snapshot.reply.since = Trail.since(request.after or 0, request.limit)
end

function PARTS.totals(snapshot, _)
  snapshot.reply.totals = Counts.totals()
end

-- Adds the rows of `part` behind `after` (nil for the first), at most `limit` where it has pages.
function ReadChunk.run(request)
  local snapshot = Snapshot.new()
  PARTS[request.part](snapshot, request)
  return snapshot.reply
end
