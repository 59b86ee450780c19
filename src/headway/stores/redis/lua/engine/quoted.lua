-- Names as messages show them.
local Quoted = {}

-- The name in quotes, as Python prints text.
function Quoted.text(name)
  if string.find(name, "'", 1, true) and not string.find(name, '"', 1, true) then
    return '"' .. name .. '"'
  end
  local inner = string.gsub(name, '\\', '\\\\')
  return "'" .. string.gsub(inner, "'", "\\'") .. "'"
end
