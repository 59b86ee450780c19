-- Comparison and copies of plain values that came in messages.
local Records = {}

-- Whether plain values are equal, tables by what they hold.
function Records.same(a, b)
  if a == b then
    return true
  end
  if type(a) ~= 'table' or type(b) ~= 'table' then
    return false
  end
  for key, value in pairs(a) do
    if not Records.same(value, b[key]) then
      return false
    end
  end
  for key in pairs(b) do
    if a[key] == nil then
      return false
    end
  end
  return true
end

-- A copy of a record with some of its fields replaced; a nil leaves the field as it is.
function Records.replace(record, fields)
  local copy = {}
  for name, value in pairs(record) do
    copy[name] = value
  end
  for name, value in pairs(fields) do
    copy[name] = value
  end
  return copy
end
