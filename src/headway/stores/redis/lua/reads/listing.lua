-- A bounded page of a listing: a walk along the index that holds the fewest rows.
-- needs: base.codec, tables.jobs
local Listing = {}

-- Rows fetched at once: few for a small page that nothing filters, never very few.
local FEWEST, MOST = 100, 500
local ENDED_BADLY = { dead = true, cancelled = true }

-- The next ids behind a seq, by the index that fits the question best.
local function walk(request, after, limit)
  if request.subject ~= nil then
    return Jobs.about(request.tenant, request.subject, after, limit, request.newest)
  end
  local states = request.states
  if states ~= nil and #states == 1 and ENDED_BADLY[states[1]] then
    return Jobs.ended_badly(states[1], after, limit, request.newest)
  end
  return Jobs.walk(after, limit, request.newest)
end

-- Says of a glance whether its job is asked for; each flow is looked at once.
local function filter(request)
  local states, flows = nil, {}
  if request.states ~= nil then
    states = {}
    for _, state in ipairs(request.states) do
      states[state] = true
    end
  end
  local function fits(number)
    local flow = Jobs.flow(number)
    return (request.lane == nil or flow.lane == request.lane)
      and (request.tenant == nil or flow.tenant == request.tenant)
      and (request.kind == nil or flow.kind == request.kind)
  end
  return function(seen)
    if states ~= nil and not states[seen.state] then
      return false
    end
    if flows[seen.flow] == nil then
      flows[seen.flow] = fits(seen.flow)
    end
    return flows[seen.flow]
  end
end

local function rows_of(ids)
  local found, rows = Jobs.load(ids), {}
  for place, id in ipairs(ids) do
    rows[place] = found[id]
  end
  return rows
end

-- The rows of a page, in order of arrival or against it, and where to go on; nil at the end.
--   request: `limit` rows are found at most, and `looked_at` are looked at.
function Listing.page(request)
  local wanted, looked, last = {}, 0, request.after
  local matches = filter(request)
  local chunk = math.min(MOST, math.max(FEWEST, request.limit + 1))
  while true do
    local ids = walk(request, last, chunk)
    for _, seen in ipairs(Jobs.glance(ids)) do
      if #wanted == request.limit or looked == request.looked_at then
        return rows_of(wanted), Codec.digits(last)
      end
      looked, last = looked + 1, seen.seq
      if matches(seen) then
        wanted[#wanted + 1] = seen.id
      end
    end
    if #ids < chunk then
      return rows_of(wanted), nil
    end
  end
end
