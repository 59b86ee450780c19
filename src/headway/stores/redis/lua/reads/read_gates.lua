-- Gates by name: these, or a page of those with parked jobs, or of those that are declared or of which
-- there is a row.
-- needs: base.codec, reads.snapshot, tables.gates, tables.jobs
local ReadGates = {}

-- The names of a page, as the view will choose them; the rows of the page are added.
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

function ReadGates.run(request)
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
