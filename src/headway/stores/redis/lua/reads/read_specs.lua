-- The gates as they are declared.
-- needs: reads.look
local ReadSpecs = {}

function ReadSpecs.run(_)
  local look = Look.new()
  Look.templates(look)
  return look.told
end
