-- Share a claim between lanes by weight.
-- needs:

local LaneShare = {}

local function gcd(a, b)
  while b > 0 do
    a, b = b, a % b
  end
  return a
end

-- Round to the nearest whole number. The direction for halves does not matter: cycles with one are
-- even, so that the odd stride of the two is chosen.
local function round(number)
  local below = math.floor(number)
  return number - below < 0.5 and below or below + 1
end

-- Return where each lane ends in a cycle, the cycle's length, and a stride that mixes it well.
local function row_of(lanes)
  local ends, total = {}, 0
  for place, one in ipairs(lanes) do
    total = total + one[2]
    ends[place] = total
  end
  -- Near the golden ratio, so that no lane's places are clustered.
  local stride = math.max(1, round(total * 0.618))
  while gcd(stride, total) > 1 do
    stride = stride + 1
  end
  return { ends = ends, total = total, stride = stride }
end

-- Return the lane at a place of the row, counted from 1.
local function lane_at(row, place)
  -- Modulo first, so that the product of large numbers stays exact.
  local at = (place % row.total) * row.stride % row.total
  for lane, last in ipairs(row.ends) do
    if at < last then
      return lane
    end
  end
end

-- Share the places of a claim between lanes by weight, exactly in the long run.
--   lanes: {name, weight} each, weights at least 1.
--   n: places of this claim; turn: its number, from 1.
-- Return {name, places} each, `n` in total. The lane to serve first, if handlers are few, is first;
-- this rotates by weight, too.
function LaneShare.share(lanes, n, turn)
  local row = row_of(lanes)
  local rest = n % row.total
  local cycles = (n - rest) / row.total
  local places = {}
  for place, one in ipairs(lanes) do
    places[place] = cycles * one[2]
  end
  -- Modulo first: above 2^53, counting up by one would never end.
  local from = (turn - 1) % row.total * n
  for place = from, from + rest - 1 do
    local lane = lane_at(row, place)
    places[lane] = places[lane] + 1
  end
  local first = lane_at(row, turn - 1)
  local shares = {}
  for step = 0, #lanes - 1 do
    local lane = (first - 1 + step) % #lanes + 1
    shares[step + 1] = { lanes[lane][1], places[lane] }
  end
  return shares
end
