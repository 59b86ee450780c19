-- A page of a listing of jobs.
-- needs: reads.snapshot, reads.listing, tables.jobs, tables.dedupe, tables.trail
local ReadJobs = {}

local function by_ids(ids)
  local found, rows = Jobs.load(ids), {}
  for _, id in ipairs(ids) do
    rows[#rows + 1] = found[id]
    -- A job that is asked for twice is added once.
    found[id] = nil
  end
  return rows
end

local function by_key(snapshot, tenant, key)
  local known = Dedupe.get(tenant, key)
  snapshot.reply.dedupe = { known }
  return known and by_ids({ known.job }) or {}
end

function ReadJobs.run(request)
  local snapshot = Snapshot.new()
  local rows, cursor
  if request.ids ~= nil then
    rows = by_ids(request.ids)
  elseif request.key ~= nil then
    rows = by_key(snapshot, request.tenant, request.key)
  elseif request.worker ~= nil then
    rows = Jobs.held_by(request.worker, request.limit)
  else
    rows, cursor = Listing.page(request)
  end
  Snapshot.jobs(snapshot, rows)
  snapshot.reply.cursor = cursor
  local ids = {}
  for place, row in ipairs(rows) do
    ids[place] = row.id
    if request.notes ~= nil then
      Snapshot.notes(snapshot, row.id, request.notes)
    end
  end
  if request.runs then
    Snapshot.runs(snapshot, ids)
    Snapshot.known(snapshot, ids)
  end
  return snapshot.reply
end
