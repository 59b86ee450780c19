-- Gates by name: these, or a page of those that are declared or of which there is a row.
-- needs: base.codec, reads.look, tables.gates
local ReadGates = {}

-- The names of a page, as the view will choose them; the rows of the page are told.
local function page(look, request)
  local rows = Gates.page(request.after, request.limit + 1)
  local last = #rows > request.limit and rows[request.limit].name or nil
  local found, names, told = {}, {}, {}
  for place, row in ipairs(rows) do
    Look.gate(look, row.name)
    told[place] = row.name
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
  look.told.gate_page = told
  return names, request.limit
end

function ReadGates.run(request)
  local look = Look.new()
  Look.templates(look)
  local names, limit = request.names, nil
  if names == nil then
    names, limit = page(look, request)
  end
  for place, name in ipairs(names) do
    if limit ~= nil and place > limit then
      break
    end
    Look.state(look, name, request)
  end
  return look.told
end
