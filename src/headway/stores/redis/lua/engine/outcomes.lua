-- One outcome of a live run, by its kind.
-- needs: base.run, base.time, tables.counts, tables.jobs, tables.signals, rules.job_row
-- needs: engine.apply_signal, engine.endings, engine.states, engine.step
local Outcomes = {}

-- Bytes of a result.
local MAX_RESULT = 1000000

-- Their handler goes on: after its run's deadline, a cancel or a signal it must not.
local NEEDS_LIVE = { HandedOver = true, GaveBack = true, KnownAs = true }
-- Outcomes that the run did not report itself.
local LOST_WORDS = { lost = true, unused = true, forced = true }

local DONE, ALREADY, LOST, CANCELLED = 'd', 'a', 'l', 'c'

-- The moment that an outcome names, or nil.
local function moment(outcome)
  if outcome.until_at ~= nil then
    return outcome.until_at
  end
  return outcome.after_ms and Time.now + math.max(0, outcome.after_ms)
end

local function is_too_long(result)
  return result ~= nil and #result > MAX_RESULT
end

local function lacks_key(outcome)
  return outcome.key == nil or outcome.key == ''
end

-- Whether an outcome may ask for what cannot be, which is found only after others were written.
function Outcomes.may_be_refused(outcome)
  local kind = outcome.type
  return outcome['then'] ~= nil
    or outcome.close ~= nil
    or kind == 'NextStage'
    or (kind == 'Failed' and outcome.stage ~= nil and outcome.stage ~= '')
    or kind == 'Returned'
    or (kind == 'Succeeded' and is_too_long(outcome.result))
    or (kind == 'Snoozed' and moment(outcome) == nil)
    or ((kind == 'HandedOver' or kind == 'KnownAs') and lacks_key(outcome))
end

local APPLY = {}

function APPLY.Succeeded(step, row, outcome)
  if row.state == 'awaiting' then
    -- After a hand-over only an explicit word settles; a return is only recorded.
    return APPLY.Returned(step, row, outcome)
  end
  if is_too_long(outcome.result) then
    Run.refuse(
      'PayloadTooLarge',
      'the result has ' .. #outcome.result .. ' bytes',
      'at most ' .. MAX_RESULT .. '; keep it elsewhere'
    )
  end
  Step.finish(step, row, 'succeeded', 'succeeded', { result = outcome.result })
  return DONE
end

function APPLY.Failed(step, row, outcome)
  local error = outcome.error or ''
  local policy = Jobs.policy(row.policy)
  local due_at = moment(outcome)
  local stage = Endings.another_stage(step, row, outcome.stage, outcome.gates)
  if due_at == nil or Endings.attempts_exhausted(policy.retry, row.attempt) then
    local reason = outcome.line or ''
    Endings.fail(step, row, 'failed', error, reason ~= '' and reason or 'failed')
  else
    Counts.happened('retried', 1)
    row.reason = outcome.line or ''
    Step.requeue(step, row, 'failed', { due_at = due_at, error = error })
  end
  Endings.enter_stage(step, row, stage)
  Counts.happened('failed', 1)
  return DONE
end

function APPLY.Died(step, row, outcome)
  Step.finish(step, row, 'dead', 'dead', { reason = outcome.reason, error = outcome.error })
  return DONE
end

function APPLY.Snoozed(step, row, outcome)
  local due_at = moment(outcome)
  if due_at == nil then
    Run.refuse(
      'InvalidValue',
      'job ' .. row.id .. ' snoozes without a delay or a moment',
      'pass one of them'
    )
  end
  if (outcome.reason or '') ~= '' then
    row.reason = outcome.reason
  end
  Step.requeue(step, row, 'snoozed', { due_at = due_at, again = true })
  Counts.happened('snoozed', 1)
  return DONE
end

function APPLY.Released(step, row, outcome)
  if row.state == 'awaiting' then
    return APPLY.Returned(step, row, { job = outcome.job, run = outcome.run })
  end
  Step.requeue(step, row, 'released', { again = true })
  return DONE
end

function APPLY.NextStage(step, row, outcome)
  local stage = Endings.stage_of(step, row, outcome.stage or '', outcome.gates or {})
  Step.requeue(step, row, 'next', { again = true })
  Endings.enter_stage(step, row, stage)
  return DONE
end

function APPLY.FoundUnfit(step, row, outcome)
  if JobRow.accepted(row) then
    -- The turn is over; what its handler says now is only recorded.
    return APPLY.Returned(step, row, { job = outcome.job, run = outcome.run })
  end
  Endings.end_turn(step, row, 'unfit', outcome.reason or '')
  return DONE
end

local function know(step, row, key)
  Signals.make_known(key, row.id, row.run)
  ApplySignal.apply_kept(step, row, key)
end

function APPLY.HandedOver(step, row, outcome)
  if lacks_key(outcome) then
    Run.refuse(
      'InvalidValue',
      'job ' .. row.id .. ' hands over without a key',
      'pass the key of the signal that will report its end'
    )
  end
  if row.state == 'awaiting' then
    local job, run = Signals.known(outcome.key)
    return job == row.id and run == row.run and ALREADY or LOST
  end
  if row.cancel_requested then
    -- A cancel was requested, and nothing has happened outside yet.
    Step.finish(step, row, 'cancelled', 'cancelled', { reason = 'cancelled' })
    return DONE
  end
  Step.move(step, row, 'awaiting')
  row.handed_at, row.deadline_at = Time.now, Time.now + math.max(1, outcome.timeout_ms)
  row.error, row.care = '', true
  Step.give_back(step, row, nil, 'run')
  Counts.happened('handed_over', 1)
  local own = ApplySignal.reference(row)
  Signals.make_known(own, row.id, row.run)
  know(step, row, outcome.key)
  ApplySignal.apply_kept(step, row, own)
  return DONE
end

function APPLY.KnownAs(step, row, outcome)
  if lacks_key(outcome) then
    Run.refuse(
      'InvalidValue',
      'job ' .. row.id .. ' is to be known under an empty key',
      "pass the provider's id"
    )
  end
  know(step, row, outcome.key)
  row.care = true
  Step.changed(step, row)
  return DONE
end

function APPLY.Returned(step, row, outcome)
  if row.state == 'running' then
    Run.refuse(
      'InvalidState',
      'job ' .. row.id .. " has not handed over, so its handler's return cannot be recorded",
      'report how it ended: succeeded, failed, …'
    )
  end
  row.last_worker, row.worker = row.worker or '', nil
  if outcome.error ~= nil and outcome.error ~= '' then
    row.error = outcome.error
  end
  Step.changed(step, row)
  return DONE
end

function APPLY.GaveBack(step, row, outcome)
  Step.give_back(step, row, outcome.gate or '')
  Step.changed(step, row)
  return DONE
end

-- Whether a worker's run is among those of its job that ended by an outcome of their own.
local function has_ended(runs, worker, outcome)
  for _, run in ipairs(runs) do
    local same = run.job == outcome.job and run.run == outcome.run and run.worker == worker
    if same and not LOST_WORDS[run.outcome] then
      return true
    end
  end
  return false
end

-- A run that has settled itself gets `already`; any other is lost.
local function already(step, worker, row, outcome)
  if NEEDS_LIVE[outcome.type] then
    return LOST
  end
  if row.run == outcome.run and row.last_worker == worker then
    local awaits = row.state == 'awaiting' and not row.in_doubt
    local own = not States.HELD[row.state] and row.outcome ~= '' and not LOST_WORDS[row.outcome]
    if own or (awaits and outcome.type == 'Returned') then
      return ALREADY
    end
  end
  -- A run that this step has ended is not written yet.
  local written = Jobs.runs({ row.id })[row.id] or {}
  if has_ended(step.runs, worker, outcome) or has_ended(written, worker, outcome) then
    return ALREADY
  end
  return LOST
end

-- Writes one outcome into the step. Returns d (done), a (already), l (lost) or c (cancelled).
--
-- Refused where it asks for what cannot be; the step is rolled back then.
function Outcomes.settle_one(step, worker, outcome, live)
  local row = Step.row(step, outcome.job)
  if row == nil then
    return LOST
  end
  if
    not (live and States.HELD[row.state] and row.run == outcome.run and row.worker == worker)
  then
    return already(step, worker, row, outcome)
  end
  local cancelled = row.cancel_requested
  local verdict = APPLY[outcome.type](step, row, outcome)
  if verdict == DONE then
    if not (cancelled and outcome.type == 'HandedOver') then
      -- What should follow a hand-over that was refused would touch the outside world.
      for _, job in ipairs(outcome['then'] or {}) do
        step.then_jobs[#step.then_jobs + 1] = job
      end
    end
    Step.close(step, outcome.close, 'job ' .. row.id)
    if cancelled and row.state == 'cancelled' then
      return CANCELLED
    end
  end
  return verdict
end
