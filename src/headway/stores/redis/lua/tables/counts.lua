-- Maintained counts, so that nothing has to be scanned.
-- python: stores.ledger.tables.CountTable
-- needs: base.keys, base.codec, base.write

local Counts = {}

local STATES = {
  'scheduled', 'waiting', 'parked', 'running', 'awaiting', 'succeeded', 'dead', 'cancelled',
}
-- In place of a lane's name, the whole store; no lane's name is empty.
local STORE = ''

-- Pending additions by field; written once, at the end of the verb or before a read.
local moved, happened = {}, {}
local is_pending = false

local function write(key, numbers)
  for field, number in pairs(numbers) do
    -- Zero may be formatted as -0, which Redis does not accept as a number.
    Write.hincrby(key, field, number == 0 and 0 or number)
    numbers[field] = nil
  end
end

local function write_all()
  write(Keys.counts, moved)
  write(Keys.totals, happened)
  is_pending = false
end

local function add(numbers, field, number)
  numbers[field] = (numbers[field] or 0) + number
  if not is_pending then
    is_pending = true
    Write.at_last(write_all)
  end
end

local function add_jobs(lane, state, number)
  add(moved, Codec.name(lane) .. state, number)
  add(moved, Codec.name(STORE) .. state, number)
end

-- Count jobs of a lane that moved from one state to another; nil is outside.
--   number: how many; nil for one.
function Counts.move(lane, old, new, number)
  number = number or 1
  if old then
    add_jobs(lane, old, -number)
  end
  if new then
    add_jobs(lane, new, number)
  end
end

-- Add to a total since the store was created.
--   number: nil for one.
function Counts.happened(what, number)
  if number ~= 0 then
    add(happened, what, number or 1)
  end
end

-- Return the number of jobs by lane and state, without lanes that never had any.
function Counts.of_lanes(lanes)
  write_all()
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

-- Return the number of jobs of the whole store by state.
function Counts.of_states()
  return Counts.of_lanes({ STORE })[STORE] or {}
end

-- Return the totals.
function Counts.totals()
  write_all()
  local kept, totals = redis.call('HGETALL', Keys.totals), {}
  for place = 1, #kept, 2 do
    totals[kept[place]] = tonumber(kept[place + 1])
  end
  return totals
end
