-- A page of the audit: gates and what is out of them, then permits, then jobs that are held.
-- needs: reads.look, tables.gates, tables.permits, tables.starts, tables.jobs
local ReadAudit = {}

-- Tells permits and starts of a gate, counted from the rows themselves.
local function count(look, row)
  local told = look.told
  local permits, amount = Permits.count(row.name)
  told.permits[#told.permits + 1] = { row.name, permits, amount, {} }
  told.starts[#told.starts + 1] = { row.name, Starts.total(row.name, -1), false }
end

local function look_at_gates(look, after, limit)
  local told = look.told
  local rows, sums = Gates.page(after, limit), Permits.sums(after, limit)
  local names = {}
  for place, sum in ipairs(sums) do
    names[place] = sum[1]
  end
  local known = Gates.load(names)
  for place, row in ipairs(rows) do
    told.gate_page[place] = row.name
    known[row.name] = row
    count(look, row)
  end
  for name, row in pairs(known) do
    told.gates[#told.gates + 1] = { name, row }
  end
  for _, name in ipairs(names) do
    if known[name] == nil then
      told.gates[#told.gates + 1] = { name, false }
    end
  end
  told.sums = sums
  return #rows
end

local function look_at_permits(look, after, limit)
  local place = after:find('\031', 1, true)
  local gate = place and after:sub(1, place - 1) or after
  local rows = Permits.page({ gate, place and after:sub(place + 1) or '' }, limit)
  local ids, seen = {}, {}
  for _, permit in ipairs(rows) do
    if not seen[permit.job] then
      seen[permit.job] = true
      ids[#ids + 1] = permit.job
    end
  end
  for _, row in pairs(Jobs.load(ids)) do
    Look.jobs(look, { row })
  end
  look.told.permit_page = rows
  return #rows
end

local function look_at_held(look, after, limit)
  local rows = Jobs.held(after, limit)
  local ids = {}
  for place, row in ipairs(rows) do
    ids[place] = row.id
  end
  Look.jobs(look, rows, 'held')
  look.told.permits_of_held = Permits.of_jobs(ids)
  return #rows
end

local PARTS = {
  { 'gates', look_at_gates },
  { 'permits', look_at_permits },
  { 'held', look_at_held },
}

-- The parts share one limit: the next is begun while something of it is left.
function ReadAudit.run(request)
  local look = Look.new()
  local told = look.told
  told.gate_page, told.gates, told.permits, told.starts = {}, {}, {}, {}
  Look.templates(look)
  local left, begun = request.limit, false
  for _, part in ipairs(PARTS) do
    if begun or part[1] == request.part then
      local found = part[2](look, begun and '' or request.after, math.max(1, left))
      begun, left = true, left - found
      if left <= 0 and found > 0 then
        break
      end
    end
  end
  return told
end
