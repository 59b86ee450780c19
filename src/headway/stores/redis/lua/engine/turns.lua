-- The turns of a cascade: the cursor moves by a decline, a timeout or a candidate found unfit.
-- needs: base.time, tables.jobs, rules.cascade, engine.follow_ups, engine.step
local Turns = {}

-- Ends the offer to a candidate; the next turn begins, or the cascade is exhausted.
--
-- `row` is running or awaiting; `answer` is declined, timeout or unfit; `reason` is for the
-- record. Returns the job's state now.
function Turns.end_turn(step, row, answer, reason)
  if row.cascade == nil then
    -- Not a cascade: there is no other candidate.
    return Step.finish(step, row, 'dead', answer, { reason = reason ~= '' and reason or answer })
  end
  row.cascade = Cascade.end_(row.cascade, answer, Time.now, reason)
  if Cascade.exhausted(row.cascade) then
    return Step.finish(step, row, 'dead', answer, { reason = 'exhausted' })
  end
  -- The next candidate's turn is a new run of the same attempt.
  return Step.requeue(step, row, answer, { again = true })
end

-- The candidate whose turn it is takes the job, which ends, or goes on awaiting its end.
function Turns.accept(step, row, body)
  local candidate = row.candidate
  if row.cascade ~= nil then
    row.cascade = Cascade.end_(row.cascade, 'accepted', Time.now, '')
  end
  local reason = candidate ~= '' and 'accepted by ' .. candidate or ''
  local follow = Jobs.policy(row.policy).on_accepted
  if follow == nil or row.cascade == nil or row.cancel_requested then
    Step.finish(step, row, 'succeeded', 'accepted', { reason = reason, result = body })
    return
  end
  row.reason, row.result = reason, body
  -- Only a signal or an operator ends it now: neither a deadline nor its worker's death.
  row.deadline_at, row.in_doubt = nil, false
  Step.changed(step, row)
  step.follow[#step.follow + 1] = FollowUps.accepted_job(row, follow)
end
