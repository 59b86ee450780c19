-- Written by `make lua` from headway.stores.ledger.verbs.settle: change that.
-- Settle: write the outcomes of live runs, each checked on its own.
-- needs: base.codec, base.python, base.run, base.time, engine.flow_of, engine.gate_names,
-- needs: engine.step, rules.apply_signal, rules.attempts, rules.job_row, rules.moves,
-- needs: rules.retry_policy, tables.counts, tables.jobs, tables.signals

local Outcomes = {}

local HELD = { awaiting = true, running = true }
local LOST_WORDS = { forced = true, lost = true, unused = true }
Outcomes.MAX_RESULT = 1000000

-- Return ALREADY for a run that its own worker settled, and LOST for any other.
function Outcomes.already(step, worker, row, outcome)
  if outcome.type == 'KnownAs' or outcome.type == 'HandedOver' or outcome.type == 'GaveBack' then
    -- With ALREADY its handler would continue, even after a deadline, a cancel or a signal.
    return 'lost'
  end
  if row.run == outcome.run and row.last_worker == worker then
    local awaits = row.state == 'awaiting' and not row.in_doubt
    local through = awaits and (outcome.type == 'Returned')
    local own = HELD[row.state] == nil and row.outcome ~= '' and LOST_WORDS[row.outcome] == nil
    if through or own then
      return 'already'
    end
  end
  -- A run that this step ended is not written yet.
  if Outcomes.has_ended(step.runs, worker, outcome) then
    return 'already'
  end
  local written = Jobs.runs({ row.id })[row.id] or {}
  return Outcomes.has_ended(written, worker, outcome) and 'already' or 'lost'
end

-- Return whether a worker's run is among those that ended with a reported outcome.
function Outcomes.has_ended(runs, worker, outcome)
  local is_any = false
  for _, run in ipairs(runs) do
    if run.job == outcome.job and run.run == outcome.run and run.worker == worker and LOST_WORDS[run.outcome] == nil then
      is_any = true
      break
    end
  end
  return is_any
end

function Outcomes.succeeded(step, row, outcome)
  if row.state == 'awaiting' then
    -- After a hand-over only a signal settles; a return is only recorded.
    return Outcomes.returned(step, row, { job = outcome.job, run = outcome.run, then_ = {}, close = {}, error = '' })
  end
  Outcomes.check_size('the result', outcome.result)
  Moves.end_(step, row, 'succeeded', 'succeeded', '', '', outcome.result)
  return 'done'
end

function Outcomes.failed(step, row, outcome)
  local error = outcome.error
  local policy = Jobs.policy(row.policy)
  local due_at = Outcomes.moment(step, outcome.after_ms, outcome.until_at)
  local stage = Attempts.another_stage(step, row, outcome.stage, outcome.gates)
  if due_at == nil or RetryPolicy.exhausted(policy.retry, row.attempt) then
    Attempts.fail(step, row, 'failed', error, outcome.line ~= '' and outcome.line or 'failed')
  else
    Counts.happened('retried')
    row.reason = outcome.line
    Moves.requeue(step, row, 'failed', due_at, false, error)
  end
  Attempts.enter(step, row, stage)
  Counts.happened('failed')
  return 'done'
end

function Outcomes.died(step, row, outcome)
  local reason, error = outcome.reason, outcome.error
  Moves.end_(step, row, 'dead', 'dead', reason, error)
  return 'done'
end

function Outcomes.snoozed(step, row, outcome)
  local due_at = Outcomes.moment(step, outcome.after_ms, outcome.until_at)
  if due_at == nil then
    local message = 'job ' .. row.id .. ' was snoozed without a delay or a time'
    Run.refuse('InvalidValue', message, 'pass one of them')
  end
  row.reason = outcome.reason ~= '' and outcome.reason or row.reason
  Moves.requeue(step, row, 'snoozed', due_at, true, '')
  Counts.happened('snoozed')
  return 'done'
end

function Outcomes.released(step, row, outcome)
  if row.state == 'awaiting' then
    return Outcomes.returned(step, row, { job = outcome.job, run = outcome.run, then_ = {}, close = {}, error = '' })
  end
  Moves.requeue(step, row, 'released', nil, true, '')
  return 'done'
end

function Outcomes.next_stage(step, row, outcome)
  local stage = FlowOf.stage_of(step, row, outcome.stage, outcome.gates)
  Moves.requeue(step, row, 'next', nil, true, '')
  Attempts.enter(step, row, stage)
  return 'done'
end

function Outcomes.unfit(step, row, outcome)
  if JobRow.accepted(row) then
    -- The turn is over; the handler's outcome is only recorded.
    return Outcomes.returned(step, row, { job = outcome.job, run = outcome.run, then_ = {}, close = {}, error = '' })
  end
  Attempts.end_turn(step, row, 'unfit', outcome.reason)
  return 'done'
end

function Outcomes.handed_over(step, row, outcome)
  if outcome.key == '' then
    local message = 'job ' .. row.id .. ' was handed over without a key'
    Run.refuse('InvalidValue', message, 'pass the key of the signal that will report its end')
  end
  if row.state == 'awaiting' then
    local known = Signals.known(outcome.key)
    local is_own = known ~= nil and Python.same(known, { row.id, row.run })
    return is_own and 'already' or 'lost'
  end
  if row.cancel_requested then
    -- A cancel was requested, and nothing has happened outside yet.
    Moves.end_(step, row, 'cancelled', 'cancelled', 'cancelled', '')
    return 'done'
  end
  Outcomes.refuse_anothers_key(step, row, outcome.key)
  local now = Time.now
  Step.move(step, row, 'awaiting')
  row.handed_at, row.deadline_at = now, now + math.max(1, outcome.timeout_ms)
  row.error, row.care = '', true
  Step.give_back(step, row, nil, 'run')
  Counts.happened('handed_over')
  Signals.make_known(row.id .. ':' .. Codec.digits(row.run), row.id, row.run)
  Outcomes.know(step, row, outcome.key)
  ApplySignal.apply_kept(step, row, row.id .. ':' .. Codec.digits(row.run))
  return 'done'
end

function Outcomes.known_as(step, row, outcome)
  if outcome.key == '' then
    local message = 'the key for job ' .. row.id .. ' is empty'
    Run.refuse('InvalidValue', message, 'pass the provider\'s id')
  end
  Outcomes.refuse_anothers_key(step, row, outcome.key)
  Outcomes.know(step, row, outcome.key)
  row.care = true
  Step.changed(step, row)
  return 'done'
end

function Outcomes.refuse_anothers_key(step, row, key)
  local other = ApplySignal.other_run(step, row, key)
  if other ~= nil then
    local message = 'the key ' .. Run.quoted(key) .. ' names run ' .. Codec.digits(other[2]) .. ' of job ' .. other[1] .. ', which has not ended'
    Run.refuse('KeyConflict', message, 'use a key that belongs to this run only, such as the provider\'s id')
  end
end

function Outcomes.know(step, row, key)
  Signals.make_known(key, row.id, row.run)
  ApplySignal.apply_kept(step, row, key)
end

function Outcomes.returned(step, row, outcome)
  if row.state == 'running' then
    local message = 'job ' .. row.id .. ' has not handed over, so its handler\'s return cannot be recorded'
    Run.refuse('InvalidState', message, 'report how it ended: succeeded, failed, …')
  end
  row.last_worker, row.worker = row.worker or '', nil
  if outcome.error ~= '' then
    row.error = outcome.error
  end
  Step.changed(step, row)
  return 'done'
end

function Outcomes.gave_back(step, row, outcome)
  -- If an implicit gate has no limit, the run took nothing there.
  if row.members[outcome.gate] == nil and not GateNames.is_implicit(outcome.gate) then
    local message = 'job ' .. row.id .. ' did not pass the gate ' .. Run.quoted(outcome.gate)
    Run.refuse('InvalidValue', message, 'give back one of its gates, by its resolved name')
  end
  Step.give_back(step, row, outcome.gate)
  Step.changed(step, row)
  return 'done'
end

-- Check the size of a result.
function Outcomes.check_size(what, data)
  if data ~= nil and #data > Outcomes.MAX_RESULT then
    local message = what .. ' has ' .. Codec.digits(#data) .. ' bytes'
    Run.refuse('PayloadTooLarge', message, 'at most ' .. Codec.digits(Outcomes.MAX_RESULT) .. '; keep it elsewhere')
  end
end

function Outcomes.moment(step, after_ms, until_at)
  if until_at ~= nil then
    return until_at
  end
  local value
  if after_ms == nil then
    value = nil
  else
    value = Time.now + math.max(0, after_ms)
  end
  return value
end

Outcomes.APPLY = {
  Succeeded = Outcomes.succeeded,
  Failed = Outcomes.failed,
  Died = Outcomes.died,
  Snoozed = Outcomes.snoozed,
  Released = Outcomes.released,
  NextStage = Outcomes.next_stage,
  FoundUnfit = Outcomes.unfit,
  HandedOver = Outcomes.handed_over,
  KnownAs = Outcomes.known_as,
  Returned = Outcomes.returned,
  GaveBack = Outcomes.gave_back,
}
