-- Hours: absolute open intervals, in order; they are worked out by the client, for Lua knows no zones.
-- needs:

local Hours = {}

-- How many of the intervals have their beginning (side 1) or end (side 2) at the instant or before.
local function passed(opens, at, side)
  local low, high = 0, #opens
  while low < high do
    local middle = math.floor((low + high) / 2)
    if opens[middle + 1][side] <= at then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Whether the instant lies in one of the intervals [from, to).
function Hours.is_open(opens, at)
  local begun = passed(opens, at, 1)
  return begun > 0 and at < opens[begun][2]
end

-- The first open instant that is not before `at`; nil if the intervals hold none.
function Hours.next_opening(opens, at)
  local ahead = opens[passed(opens, at, 2) + 1]
  return ahead and math.max(at, ahead[1]) or nil
end
