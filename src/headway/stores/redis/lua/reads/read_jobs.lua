-- A page of a listing of jobs.
-- needs: reads.look, reads.listing, tables.jobs, tables.dedupe, tables.trail
local ReadJobs = {}

local function by_ids(ids)
  local found, rows = Jobs.load(ids), {}
  for _, id in ipairs(ids) do
    rows[#rows + 1] = found[id]
    -- A job that is asked for twice is told once.
    found[id] = nil
  end
  return rows
end

local function by_key(look, tenant, key)
  local known = Dedupe.get(tenant, key)
  look.told.dedupe = { known }
  return known and by_ids({ known.job }) or {}
end

function ReadJobs.run(request)
  local look = Look.new()
  local rows, cursor
  if request.ids ~= nil then
    rows = by_ids(request.ids)
  elseif request.key ~= nil then
    rows = by_key(look, request.tenant, request.key)
  else
    rows, cursor = Listing.page(request)
  end
  Look.jobs(look, rows)
  look.told.cursor = cursor
  local ids = {}
  for place, row in ipairs(rows) do
    ids[place] = row.id
    if request.notes ~= nil then
      Look.notes(look, row.id, request.notes)
    end
  end
  if request.runs then
    Look.runs(look, ids)
    Look.known(look, ids)
  end
  return look.told
end
