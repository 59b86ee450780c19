-- Written by `make lua` from headway.stores.ledger.verbs.sweep: change that.
-- Sweep: bounded work caused only by the passing of time; any number of sweeps may run at once.
-- needs: base.time, engine.step, rules.attempts, rules.moves, tables.jobs

local Sweep = {}

-- End queued jobs past their `expires_at`, and return how many ended.
function Sweep.expire(step, limit)
  local ids = Jobs.expired(limit)
  if #ids == 0 then
    return 0
  end
  Step.load(step, ids)
  for _, job in ipairs(ids) do
    Moves.end_(step, step.rows[job], 'dead', '', 'expired', '')
  end
  return #ids
end

function Sweep.deadlines(step, n)
  local ids = Jobs.deadlines(n)
  Step.load(step, ids)
  for _, job in ipairs(ids) do
    local row = step.rows[job]
    -- Its worker's lapse in this same sweep may have extended its deadline.
    if row.deadline_at ~= nil and row.deadline_at <= Time.now then
      Sweep.meet_deadline(step, row)
    end
  end
  return #ids
end

-- Apply an awaiting job's deadline: ask the provider first, then follow the policy.
function Sweep.meet_deadline(step, row)
  local policy = Jobs.policy(row.policy)
  if row.cancel_requested then
    Moves.end_(step, row, 'cancelled', 'deadline', 'cancelled', '')
  elseif row.reconciles <= 0 and Attempts.ask_provider(step, row) then
    return
  elseif policy.cascade then
    Attempts.end_turn(step, row, 'timeout', 'no answer in time')
  elseif policy.on_deadline == 'retry' then
    Attempts.fail(step, row, 'deadline', 'no signal came in time', 'deadline')
  else
    Moves.end_(step, row, 'dead', 'deadline', 'deadline', 'no signal came in time')
  end
end
