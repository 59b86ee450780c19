-- A parcel of a store's whole content: the rows of one part, behind a place in it.
-- needs: reads.look, tables.jobs, tables.gates, tables.permits, tables.starts, tables.lanes
-- needs: tables.dedupe, tables.signals, tables.entries, tables.tokens, tables.trail, tables.counts
local ReadParcel = {}

local PARTS = {}

function PARTS.templates(look, _)
  Look.templates(look)
end

function PARTS.gates(look, request)
  local told = look.told
  told.gate_page, told.gates, told.every_start = {}, {}, {}
  for place, row in ipairs(Gates.page(request.after or '', request.limit)) do
    told.gate_page[place] = row.name
    told.gates[place] = { row.name, row }
    told.every_start[place] = { row.name, Starts.oldest(row.name, 0, request.most) }
  end
end

function PARTS.lanes(look, _)
  local told = look.told
  told.lane_names, told.tenant_starts = Lanes.names(), {}
  for place, name in ipairs(told.lane_names) do
    Look.lane(look, name)
    told.tenant_starts[place] = { name, Lanes.all_tenant_starts(name) }
  end
end

function PARTS.entries(look, _)
  look.told.entries = Entries.all()
end

function PARTS.tokens(look, _)
  look.told.tokens = Tokens.all()
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

function PARTS.jobs(look, request)
  local rows, ids = Jobs.arrived(request.after or 0, request.limit), {}
  for place, row in ipairs(rows) do
    ids[place] = row.id
  end
  Look.jobs(look, rows)
  Look.runs(look, ids)
  look.told.permits_of_held = Permits.of_jobs(ids)
  look.told.dedupe = keys_of(rows)
end

function PARTS.known(look, request)
  look.told.known = Signals.all_known(request.after or '', request.limit)
end

function PARTS.events(look, request)
  look.told.events = Signals.all_heard(request.after or { '', '' }, request.limit)
end

function PARTS.trail(look, request)
  look.told.since = Trail.since(request.after or 0, request.limit)
end

function PARTS.totals(look, _)
  look.told.totals = Counts.totals()
end

-- Tells the rows of `part` behind `after` (nil for the first), at most `limit` where it has pages.
function ReadParcel.run(request)
  local look = Look.new()
  PARTS[request.part](look, request)
  return look.told
end
