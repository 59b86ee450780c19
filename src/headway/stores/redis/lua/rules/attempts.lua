-- Written by `make lua` from headway.stores.ledger.attempts: change that.
-- What follows an attempt: another stage, the next candidate, a retry, or its worker's lapse.
-- needs: base.codec, base.time, engine.flow_of, engine.new_jobs, engine.step, rules.cascade,
-- needs: rules.job_row, rules.moves, rules.retry_policy, tables.counts, tables.jobs, tables.workers

local Attempts = {}

local QUEUED = { parked = true, scheduled = true, waiting = true }

-- Resolve a stage as `stage_of` does; return None for an empty name, the current stage.
function Attempts.another_stage(step, row, name, gates)
  return name ~= '' and FlowOf.stage_of(step, row, name, gates) or nil
end

-- Move a requeued job to a stage; leave a job that has ended unchanged.
function Attempts.enter(step, row, stage)
  if stage == nil or QUEUED[row.state] == nil then
    return
  end
  row.stage, row.flow, row.keyed = stage.name, stage.flow, stage.keyed
  Step.changed(step, row)
end

-- End the offer to a candidate; the next turn starts, or the cascade is exhausted.
function Attempts.end_turn(step, row, answer, reason)
  if row.cascade == nil then
    -- Not a cascade: there is no other candidate.
    return Moves.end_(step, row, 'dead', answer, reason ~= '' and reason or answer, '')
  end
  row.cascade = Cascade.end_(row.cascade, answer, Time.now, reason)
  -- The next candidate's turn is a new run of the same attempt.
  return Moves.requeue(step, row, answer, nil, true, '')
end

-- Accept the job for the candidate whose turn it is; the job ends, or awaits its end.
function Attempts.accept(step, row, body)
  local candidate = row.candidate
  local reason = candidate ~= '' and 'accepted by ' .. candidate or ''
  if row.cascade ~= nil then
    row.cascade = Cascade.end_(row.cascade, 'accepted', Time.now, '')
  end
  local follow = Jobs.policy(row.policy).on_accepted
  if follow == nil or row.cascade == nil or row.cancel_requested then
    return Moves.end_(step, row, 'succeeded', 'accepted', reason, '', body)
  end
  row.reason, row.result = reason, body
  -- Only a signal or an operator ends it now: neither a deadline nor its worker's death.
  row.deadline_at, row.in_doubt = nil, false
  Step.changed(step, row)
  table.insert(step.follow, NewJobs.accepted_job(row, follow))
  return row.state
end

-- Take all jobs from a worker whose lease has ended; changes to its runs must be flushed.
function Attempts.lapse(step, worker)
  local held = Jobs.held_by(worker.id)
  local list = {}
  for at, one in ipairs(held) do
    list[at] = one.id
  end
  Step.load(step, list)
  Attempts.take_from(step, worker, held, true)
end

-- Take jobs from a worker whose lease has ended.
--
-- The end of the lease fences the remaining jobs. The worker is marked as lapsed when it has no
-- job left: until then each sweep finds it, and its own beat or claim takes the rest first.
function Attempts.take_from(step, worker, held, whole)
  local lost = 0
  for _, one in ipairs(held) do
    local row = step.rows[one.id]
    if row.state == 'running' then
      Attempts.fail_lost_run(step, row)
      lost = lost + 1
    elseif row.state == 'awaiting' then
      Attempts.mark_in_doubt(step, row)
    end
  end
  worker.lapsed = whole
  -- Even if only some were taken: a beat that read the row before must not extend the lease.
  Workers.save(worker)
  Counts.happened('lost', lost)
  return lost
end

-- Fail the attempt of a running job whose worker is gone.
function Attempts.fail_lost_run(step, row)
  Attempts.fail(step, row, 'lost', 'the worker\'s lease ended', 'lease lost')
end

-- Mark an awaiting job whose worker died before its handler returned.
function Attempts.mark_in_doubt(step, row)
  row.last_worker, row.worker = row.worker or '', nil
  Step.changed(step, row)
  if JobRow.accepted(row) then
    -- A candidate has accepted it, so nothing is in doubt.
    return
  end
  row.in_doubt = true
  Attempts.ask_provider(step, row)
end

-- Create the kind's reconcile job, if it has one, and extend the deadline for it.
function Attempts.ask_provider(step, row)
  local policy = Jobs.policy(row.policy)
  if policy.reconcile == nil then
    return false
  end
  row.reconciles = math.abs(row.reconciles) + 1
  row.deadline_at = math.max(row.deadline_at or 0, Time.now + policy.reconcile_within_ms)
  Step.changed(step, row)
  table.insert(step.follow, NewJobs.reconcile_job(row, policy.reconcile))
  return true
end

-- End a failed attempt: schedule the next by the job's policy, or make the job dead.
--
-- A retry without a delay keeps the job's due time, and so its place before later jobs.
function Attempts.fail(step, row, outcome, error, reason)
  local policy = Jobs.policy(row.policy)
  if RetryPolicy.exhausted(policy.retry, row.attempt) then
    return Moves.end_(step, row, 'dead', outcome, reason, error)
  end
  local delay = RetryPolicy.delay_ms(policy.retry, row.attempt, row.id .. ':' .. Codec.digits(row.run))
  Counts.happened('retried')
  row.reason = reason
  local due_at = delay ~= 0 and Time.now + delay or nil
  return Moves.requeue(step, row, outcome, due_at, false, error)
end
