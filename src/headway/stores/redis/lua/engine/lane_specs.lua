-- What a lane carries now: an operator's word, else code's, else the engine's defaults.
local LaneSpecs = {}

-- The spec that holds of a lane's row; fields that are nil are the engine's.
function LaneSpecs.current(row)
  return row.override or row.spec or { name = row.name, weights = {} }
end
