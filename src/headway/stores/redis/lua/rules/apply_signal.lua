-- Written by `make lua` from headway.stores.ledger.verbs.signal: change that.
-- Signals: an external event is applied once, kept for its run, or refused as late.
-- needs: base.codec, base.run, base.time, engine.flow_of, engine.step, rules.attempts,
-- needs: rules.job_row, rules.moves, rules.retry_policy, tables.counts, tables.jobs,
-- needs: tables.signals, tables.trail

local ApplySignal = {}

local HELD = { awaiting = true, running = true }
local KEPT_MOST = 100000
local KEPT_MS = 3600000
local _ANSWERS = { accepted = true, declined = true }

-- Return the (job, run) that a key names.
function ApplySignal.known_run(step, key)
  local known = Signals.known(key)
  -- A job's own reference is valid from its claim on, even before it hands over.
  local value
  if known == nil then
    value = Signals.read_reference(key)
  else
    value = known
  end
  return value
end

-- Return the live run of another job that a key names; the key must stay with that run.
function ApplySignal.other_run(step, row, key)
  local known = ApplySignal.known_run(step, key)
  if known == nil or known[1] == row.id then
    return nil
  end
  local other = Step.row(step, known[1])
  local is_live = other ~= nil and HELD[other.state] ~= nil and other.run == known[2]
  local value
  if is_live then
    value = known
  else
    value = nil
  end
  return value
end

function ApplySignal.apply_new(step, event, row, run)
  local before = ApplySignal.heard_before(step, event, row)
  if before ~= nil then
    return { answer = before, job = row.id, state = row.state }
  end
  if row.run == run and row.state == 'running' and event.kind ~= 'note' then
    return ApplySignal.keep(step, event, event.key, row)
  end
  local answer = ApplySignal.apply(step, event, row, run, Time.now)
  return { answer = answer, job = row.id, state = row.state }
end

-- Return the answer to an event that the job has already received; None for a new event.
function ApplySignal.heard_before(step, event, row)
  local known = Signals.heard(row.id, event.event)
  if known == nil then
    return nil
  end
  if known.kept_until == nil then
    return known.payload == 'late' and 'late' or 'already'
  end
  -- It arrived for the job's bare id, which is not a key, and was kept in the job's own scope.
  local early = known
  Signals.drop({ early })
  return nil
end

function ApplySignal.keep(step, event, scope, row)
  local state = row ~= nil and row.state or nil
  local job = row ~= nil and row.id or nil
  local known = Signals.heard(scope, event.event)
  if known ~= nil then
    local answer = known.kept_until ~= nil and 'kept' or 'already'
    return { answer = answer, job = job, state = state }
  end
  if Signals.kept_count() >= KEPT_MOST then
    local message = Codec.digits(KEPT_MOST) .. ' signals are kept for jobs that do not await them'
    Run.refuse('StoreUnavailable', message, 'send it again later')
  end
  if event.stage ~= '' then
    -- When it is applied later, there is no caller to report an unknown gate to.
    FlowOf.make_ready(step.book, row ~= nil and row.kind or 'unknown', event.gates)
  end
  local now = Time.now
  Signals.save({
    scope = scope,
    event = event.event,
    key = event.key,
    at = now,
    kept_until = now + KEPT_MS,
    payload = cmsgpack.pack(event),
  })
  return { answer = 'kept', job = job, state = state }
end

-- Apply the events that arrived for a key before its run awaited them.
function ApplySignal.apply_kept(step, row, key)
  for _, kept in ipairs(Signals.kept(key)) do
    if row.state ~= 'awaiting' then
      break
    end
    local event = cmsgpack.unpack(kept.payload)
    Signals.drop({ kept })
    if not (kept.kept_until ~= nil and kept.kept_until <= Time.now) then
      if ApplySignal.heard_before(step, event, row) == nil then
        ApplySignal.apply(step, event, row, row.run, kept.at)
      end
    end
  end
end

function ApplySignal.apply(step, event, row, run, at)
  Counts.happened('signals')
  if event.known_as == '' then
    return ApplySignal.apply_to_run(step, event, row, run, at)
  end
  local other = ApplySignal.other_run(step, row, event.known_as)
  if other ~= nil then
    -- What the event reports about its own run still applies.
    ApplySignal.note(step, row, event.reason, 'the key ' .. event.known_as .. ' names another job, ' .. other[1])
    return ApplySignal.apply_to_run(step, event, row, run, at)
  end
  Signals.make_known(event.known_as, row.id, run)
  local answer = ApplySignal.apply_to_run(step, event, row, run, at)
  if row.run == run then
    -- Events that arrived for that key before it was known.
    ApplySignal.apply_kept(step, row, event.known_as)
  end
  return answer
end

function ApplySignal.apply_to_run(step, event, row, run, at)
  local late = event.kind ~= 'note' and (row.run ~= run or row.state ~= 'awaiting' or ApplySignal.is_for_another_candidate(row, event) or ApplySignal.is_answered(row, event))
  local heard = {
    scope = row.id,
    event = event.event,
    key = event.key,
    at = at,
    payload = late and 'late' or '',
  }
  Signals.save(heard)
  if late then
    Counts.happened('late_signals')
    return 'late'
  end
  if event.kind == 'note' then
    ApplySignal.note(step, row, event.reason, event.label ~= '' and event.label or 'note')
  elseif event.kind == 'progress' then
    ApplySignal.extend(step, event, row)
  else
    ApplySignal.decide(step, event, row)
  end
  return 'applied'
end

function ApplySignal.note(step, row, reason, text)
  local author = 'signal'
  Trail.add({ {
    seq = 0,
    at = Time.now,
    author = author,
    reason = reason,
    verb = 'note',
    target = row.id,
    detail = text,
  } })
end

function ApplySignal.is_for_another_candidate(row, event)
  return event.candidate ~= '' and row.candidate ~= '' and event.candidate ~= row.candidate
end

function ApplySignal.is_answered(row, event)
  local answers = event.kind == 'final' and _ANSWERS[event.decided] ~= nil
  return JobRow.accepted(row) and (event.offer or answers)
end

function ApplySignal.extend(step, event, row)
  -- An accepted job has no deadline, so a late signal cannot extend it.
  if event.extend_ms ~= nil and not JobRow.accepted(row) then
    row.deadline_at = Time.now + math.max(1, event.extend_ms)
    row.reconciles = -math.abs(row.reconciles)
  end
  if event.body ~= nil then
    row.progress = event.body
  end
  row.in_doubt = false
  Step.changed(step, row)
end

function ApplySignal.decide(step, event, row)
  local decided = event.decided
  if decided == 'succeeded' then
    local reason = event.reason ~= '' and event.reason or (JobRow.accepted(row) and row.reason or '')
    Moves.end_(step, row, 'succeeded', 'succeeded', reason, '', event.body)
  elseif decided == 'dead' then
    Moves.end_(step, row, 'dead', 'dead', event.reason ~= '' and event.reason or 'failed', '', event.body)
  elseif decided == 'accepted' then
    Attempts.accept(step, row, event.body)
  elseif decided == 'declined' then
    Attempts.end_turn(step, row, 'declined', event.reason)
  else
    local stage = Attempts.another_stage(step, row, event.stage, event.gates)
    if event.after_ms == nil then
      Attempts.fail(step, row, 'failed', event.reason, event.reason ~= '' and event.reason or 'failed')
    else
      ApplySignal.retry_after(step, row, event.after_ms, event.reason)
    end
    Attempts.enter(step, row, stage)
  end
end

-- Schedule another attempt after a given delay; if no attempts are left, the job is dead.
function ApplySignal.retry_after(step, row, after_ms, reason)
  local policy = Jobs.policy(row.policy)
  if RetryPolicy.exhausted(policy.retry, row.attempt) then
    Moves.end_(step, row, 'dead', 'failed', reason ~= '' and reason or 'failed', reason)
    return
  end
  Counts.happened('retried')
  row.reason = reason
  Moves.requeue(step, row, 'failed', Time.now + math.max(0, after_ms), false, reason)
end
