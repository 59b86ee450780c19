-- A page of the audit: gates and what is out of them, then permits, then jobs that are held.
-- needs: reads.snapshot, tables.gates, tables.permits, tables.starts, tables.jobs
local ReadAudit = {}

-- Adds permits and starts of a gate, counted from the rows themselves.
local function count(snapshot, row)
  local reply = snapshot.reply
  local permits, amount = Permits.count(row.name)
  reply.permits[#reply.permits + 1] = { row.name, permits, amount, {} }
  reply.starts[#reply.starts + 1] = { row.name, Starts.total(row.name, -1), false }
end

local function look_at_gates(snapshot, after, limit)
  local reply = snapshot.reply
  local rows, sums = Gates.page(after, limit), Permits.sums(after, limit)
  local names = {}
  for place, sum in ipairs(sums) do
    names[place] = sum[1]
  end
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

local function look_at_permits(snapshot, after, limit)
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
    Snapshot.jobs(snapshot, { row })
  end
  snapshot.reply.permit_page = rows
  return #rows
end

local function look_at_held(snapshot, after, limit)
  local rows = Jobs.held(after, limit)
  local ids = {}
  for place, row in ipairs(rows) do
    ids[place] = row.id
  end
  Snapshot.jobs(snapshot, rows, 'held')
  snapshot.reply.permits_of_held = Permits.of_jobs(ids)
  return #rows
end

local PARTS = {
  { 'gates', look_at_gates },
  { 'permits', look_at_permits },
  { 'held', look_at_held },
}

-- The parts share one limit: the next is begun while something of it is left.
function ReadAudit.run(request)
  local snapshot = Snapshot.new()
  local reply = snapshot.reply
  reply.gate_page, reply.gates, reply.permits, reply.starts = {}, {}, {}, {}
  Snapshot.templates(snapshot)
  local left, begun = request.limit, false
  for _, part in ipairs(PARTS) do
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
