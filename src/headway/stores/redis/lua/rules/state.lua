-- Written by `make lua` from headway.core.state: change that.
-- The states of a job, and the table of allowed transitions.
-- needs: base.run

local State = {}

local MOVES = {
  scheduled = {
    cancelled = true,
    dead = true,
    parked = true,
    scheduled = true,
    succeeded = true,
    waiting = true,
  },
  waiting = {
    cancelled = true,
    dead = true,
    parked = true,
    running = true,
    scheduled = true,
    succeeded = true,
    waiting = true,
  },
  parked = {
    cancelled = true,
    dead = true,
    parked = true,
    scheduled = true,
    succeeded = true,
    waiting = true,
  },
  running = {
    awaiting = true,
    cancelled = true,
    dead = true,
    scheduled = true,
    succeeded = true,
    waiting = true,
  },
  awaiting = {
    awaiting = true,
    cancelled = true,
    dead = true,
    scheduled = true,
    succeeded = true,
    waiting = true,
  },
  succeeded = {},
  dead = { scheduled = true, waiting = true },
  cancelled = { scheduled = true, waiting = true },
}
State.FINAL = { cancelled = true, dead = true, succeeded = true }
State.HELD = { awaiting = true, running = true }
State.QUEUED = { parked = true, scheduled = true, waiting = true }

-- Check that a transition is allowed.
function State.check_move(old, new)
  if MOVES[old][new] == nil then
    local message = 'there is no transition from ' .. old .. ' to ' .. new
    Run.refuse('InvariantBroken', message)
  end
end
