-- The states of a job and the one table of moves between them.
-- needs: base.run
local States = {}

-- The end of the year 9999: what is closed until then is closed for good.
States.FOREVER = 253402300800000

local function set(...)
  local all = {}
  for _, part in ipairs({ ... }) do
    if type(part) == 'table' then
      for state in pairs(part) do
        all[state] = true
      end
    else
      all[part] = true
    end
  end
  return all
end

-- No move leaves these but an operator's retry, which begins a new life.
States.FINAL = set('succeeded', 'dead', 'cancelled')

-- The states in which a job holds permits.
States.HELD = set('running', 'awaiting')

-- The states in which a job has no holder.
States.QUEUED = set('scheduled', 'waiting', 'parked')

-- From each state, the states a job may go to.
local MOVES = {
  scheduled = set(States.QUEUED, States.FINAL),
  waiting = set(States.QUEUED, States.FINAL, 'running'),
  parked = set(States.QUEUED, States.FINAL),
  running = set(States.FINAL, 'awaiting', 'scheduled', 'waiting'),
  awaiting = set(States.FINAL, 'awaiting', 'scheduled', 'waiting'),
  succeeded = set(),
  dead = set('waiting', 'scheduled'),
  cancelled = set('waiting', 'scheduled'),
}

-- Checks a move against the table; refuses any other with InvariantBroken.
function States.check_move(old, new)
  if not MOVES[old][new] then
    Run.refuse('InvariantBroken', 'no move leads from ' .. old .. ' to ' .. new)
  end
end
