-- ApplySignal: what an event does to the run that it is about.
-- needs: base.codec, base.run, base.time, tables.counts, tables.jobs, tables.signals
-- needs: tables.trail, rules.job_row, engine.flow_of, engine.gate_book, engine.endings
-- needs: engine.step
local ApplySignal = {}

-- How long an event waits for its run.
local KEPT_MS = 3600000

-- The payload of an event that was late: so is its repetition.
local LATE = 'late'

-- How many events may wait at once.
local KEPT_MOST = 100000

-- The job's own reference, under which signals always find its run.
function ApplySignal.reference(row)
  return row.id .. ':' .. Codec.digits(row.run)
end

local function is_other_candidate(row, event)
  local candidate = event.candidate or ''
  return candidate ~= '' and row.candidate ~= '' and candidate ~= row.candidate
end

-- Whether an event is about an offer that its candidate has accepted.
local function is_answered(row, event)
  local decided = event.decided
  local answers = event.kind == 'final' and (decided == 'accepted' or decided == 'declined')
  return (event.offer or answers) and JobRow.accepted(row)
end

local function extend(step, event, row)
  -- What a candidate has accepted has no deadline, whatever a late word says.
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

-- Schedules another attempt after a given delay; without attempts left the job is dead.
local function retry_after(step, row, after_ms, reason)
  local policy = Jobs.policy(row.policy)
  if Endings.attempts_exhausted(policy.retry, row.attempt) then
    local details = { reason = reason ~= '' and reason or 'failed', error = reason }
    Step.finish(step, row, 'dead', 'failed', details)
    return
  end
  Counts.happened('retried', 1)
  row.reason = reason
  local due_at = Time.now + math.max(0, after_ms)
  Step.requeue(step, row, 'failed', { due_at = due_at, error = reason })
end

local function decide(step, event, row)
  local decided, reason = event.decided, event.reason or ''
  local or_failed = reason ~= '' and reason or 'failed'
  if decided == 'succeeded' then
    if reason == '' and JobRow.accepted(row) then
      reason = row.reason
    end
    Step.finish(step, row, 'succeeded', 'succeeded', { reason = reason, result = event.body })
  elseif decided == 'dead' then
    Step.finish(step, row, 'dead', 'dead', { reason = or_failed, result = event.body })
  elseif decided == 'accepted' then
    Endings.accept(step, row, event.body)
  elseif decided == 'declined' then
    Endings.end_turn(step, row, 'declined', reason)
  else
    local stage = Endings.another_stage(step, row, event.stage, event.gates)
    if event.after_ms == nil then
      Endings.fail(step, row, 'failed', reason, or_failed)
    else
      retry_after(step, row, event.after_ms, reason)
    end
    Endings.enter_stage(step, row, stage)
  end
end

-- What an event does to a job's run but for its key. Returns applied or late.
local function apply_to_run(step, event, row, run, at)
  local is_late = event.kind ~= 'note'
    and (
      row.run ~= run
      or row.state ~= 'awaiting'
      or is_other_candidate(row, event)
      or is_answered(row, event)
    )
  local payload = is_late and LATE or ''
  Signals.save({ scope = row.id, event = event.event, key = event.key, at = at, payload = payload })
  if is_late then
    Counts.happened('late_signals', 1)
    return 'late'
  end
  if event.kind == 'note' then
    local label = event.label or ''
    Trail.add({
      {
        at = Time.now,
        author = 'signal',
        reason = event.reason or '',
        verb = 'note',
        target = row.id,
        detail = label ~= '' and label or 'note',
      },
    })
  elseif event.kind == 'progress' then
    extend(step, event, row)
  else
    decide(step, event, row)
  end
  return 'applied'
end

-- Applies an event that came at a moment to a job's run. Returns applied or late.
function ApplySignal.apply(step, event, row, run, at)
  Counts.happened('signals', 1)
  local key = event.known_as or ''
  if key == '' then
    return apply_to_run(step, event, row, run, at)
  end
  Signals.make_known(key, row.id, run)
  local answer = apply_to_run(step, event, row, run, at)
  if row.run == run then
    -- What came under that key before it was known.
    ApplySignal.apply_kept(step, row, key)
  end
  return answer
end

-- The answer to an event that the job had before; nil for a new one.
function ApplySignal.heard_before(event, row)
  local known = Signals.heard(row.id, event.event)
  if known == nil then
    return nil
  end
  if known.kept_until == nil then
    return known.payload == LATE and 'late' or 'already'
  end
  -- It came under the job's bare id, which is no key, and was kept in the job's own scope.
  Signals.drop({ known })
  return nil
end

-- Keeps an event that no run awaits yet, in a scope: its key. Returns kept or already.
--   kind: of the job that it is about, if one is known.
--
-- Refuses with StoreUnavailable where too many are kept, and as `FlowOf.check` where it names gates
-- of another stage that a job cannot ask for.
function ApplySignal.keep(step, event, scope, kind)
  local known = Signals.heard(scope, event.event)
  if known ~= nil then
    return known.kept_until ~= nil and 'kept' or 'already'
  end
  if Signals.kept_count() >= KEPT_MOST then
    Run.refuse(
      'StoreUnavailable',
      KEPT_MOST .. ' signals are kept for jobs that do not await them',
      'send it again later'
    )
  end
  if event.stage ~= nil and event.stage ~= '' then
    -- When it is applied there is no caller to report an unknown gate to.
    FlowOf.make_ready(step.book, kind or 'unknown', event.gates or {})
  end
  Signals.save({
    scope = scope,
    event = event.event,
    key = event.key,
    at = Time.now,
    kept_until = Time.now + KEPT_MS,
    payload = cmsgpack.pack(event),
  })
  return 'kept'
end

-- Applies the events that came for a key before its run awaited them.
function ApplySignal.apply_kept(step, row, key)
  for _, kept in ipairs(Signals.kept(key)) do
    if row.state ~= 'awaiting' then
      break
    end
    local event = cmsgpack.unpack(kept.payload)
    Signals.drop({ kept })
    local stale = kept.kept_until ~= nil and kept.kept_until <= Time.now
    if not stale and ApplySignal.heard_before(event, row) == nil then
      ApplySignal.apply(step, event, row, row.run, kept.at)
    end
  end
end
