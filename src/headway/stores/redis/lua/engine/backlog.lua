-- The most jobs that a lane may hold.
-- needs: base.fail, tables.counts, tables.lanes, engine.quoted, engine.states

local Backlog = {}

-- Refuses with BacklogFull if a lane would hold more jobs than it may.
--   counts: {lane, state, n} of the new ones.
function Backlog.check(lanes, counts)
  local rows, limited, names = Lanes.load(lanes), {}, {}
  for _, lane in ipairs(lanes) do
    local most = rows[lane] and Lanes.current(rows[lane]).max_backlog
    if most ~= nil then
      limited[lane] = most
      names[#names + 1] = lane
    end
  end
  if #names == 0 then
    return
  end
  local held = Counts.of_lanes(names)
  for _, lane in ipairs(names) do
    local new, old = 0, 0
    for _, one in ipairs(counts) do
      new = new + (one.lane == lane and one.n or 0)
    end
    for state, n in pairs(held[lane] or {}) do
      old = old + (States.FINAL[state] and 0 or n)
    end
    if old + new > limited[lane] then
      local message = 'lane %s holds %.0f jobs of at most %.0f; %.0f more are refused'
      local said = string.format(message, Quoted.text(lane), old, limited[lane], new)
      Fail.refuse('BacklogFull', said, "try later, or raise the lane's max_backlog")
    end
  end
end
