-- Nothing but what the runner does and tells: a store has an identity, and whether it is doubted.
local Sight = {}

function Sight.run(_)
  return true
end
