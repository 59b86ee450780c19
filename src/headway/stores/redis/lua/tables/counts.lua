-- Counts that are kept, so that nobody has to scan.
-- needs: base.keys, base.codec, base.write

local Counts = {}

local STATES = {
  'scheduled', 'waiting', 'parked', 'running', 'awaiting', 'succeeded', 'dead', 'cancelled',
}
-- Where a lane's name stands, the whole store: no lane's name is empty.
local STORE = ''

local function add(lane, state, number)
  Write.hincrby(Keys.counts, Codec.name(lane) .. state, number)
  Write.hincrby(Keys.counts, Codec.name(STORE) .. state, number)
end

-- Counts jobs of a lane that went from one state to another; nil is outside.
--   number: how many; nil for one.
function Counts.move(lane, old, new, number)
  number = number or 1
  if old then
    add(lane, old, -number)
  end
  if new then
    add(lane, new, number)
  end
end

-- Adds to a total since the store was made.
--   number: nil for one.
function Counts.happened(what, number)
  if number ~= 0 then
    Write.hincrby(Keys.totals, what, number or 1)
  end
end

-- Jobs by lane and state; a lane is absent if it never had any.
function Counts.of_lanes(lanes)
  local found = {}
  for _, lane in ipairs(lanes) do
    local fields = {}
    for place, state in ipairs(STATES) do
      fields[place] = Codec.name(lane) .. state
    end
    for place, number in ipairs(Write.read(Keys.counts, fields)) do
      if number then
        found[lane] = found[lane] or {}
        found[lane][STATES[place]] = tonumber(number)
      end
    end
  end
  return found
end

-- Jobs of the whole store by state.
function Counts.of_states()
  return Counts.of_lanes({ STORE })[STORE] or {}
end

-- The totals.
function Counts.totals()
  local kept, totals = redis.call('HGETALL', Keys.totals), {}
  for place = 1, #kept, 2 do
    totals[kept[place]] = tonumber(kept[place + 1])
  end
  return totals
end
