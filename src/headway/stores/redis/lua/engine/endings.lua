-- How a run ends short of success, and how its job goes on: at another stage, with the next
-- candidate, after a delay, or in doubt.
-- needs: base.time, tables.jobs, tables.workers, tables.counts, rules.cascade, rules.job_row
-- needs: engine.flow_of, engine.states, engine.step, engine.new_jobs

local Endings = {}

-- A stage with its gates, for a job; see `FlowOf.check` for what is refused.
function Endings.stage_of(step, row, name, gates)
  local flow, keyed = FlowOf.flow_of(step.book, row.lane, row.tenant, row.kind, gates)
  return { name = name, flow = flow, keyed = keyed }
end

-- As `stage_of`; nil for no name, which stays where the job is.
function Endings.another_stage(step, row, name, gates)
  if name == nil or name == '' then
    return nil
  end
  return Endings.stage_of(step, row, name, gates or {})
end

-- A job that is back in its queue goes on at a stage (nil to stay); one that has ended stays as it
-- was.
function Endings.enter_stage(step, row, stage)
  if stage == nil or not States.QUEUED[row.state] then
    return
  end
  row.stage, row.flow, row.keyed = stage.name, stage.flow, stage.keyed
  Step.changed(step, row)
end

-- The turns of a cascade: the cursor moves by a decline, a timeout or a candidate found unfit.

-- Ends the offer to a candidate; the next turn begins, or the cascade is exhausted.
--
-- `row` is running or awaiting; `answer` is declined, timeout or unfit; `reason` is for the
-- record. Returns the job's state now.
function Endings.end_turn(step, row, answer, reason)
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
function Endings.accept(step, row, body)
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
  step.follow[#step.follow + 1] = NewJobs.accepted_job(row, follow)
end

-- Backoff: how long a job waits before its next attempt.

-- Whether no attempt is left after this one (1 for the first).
function Endings.attempts_exhausted(retry, attempt)
  return attempt >= retry.attempts
end

-- The delay after a failed attempt, ms from 0 to `cap_ms`. The draw is a hash of the seed, so that
-- a repeated settlement writes the same moment.
--   attempt: the attempt that failed, 1 for the first.
--   seed: what the jitter is drawn from, such as the job's id and run.
function Endings.delay_ms(retry, attempt, seed)
  -- Beyond 2^64 the cap has long been reached; a larger exponent would overflow.
  local exponent = math.min(attempt - 1, 64)
  local whole = math.min(retry.cap_ms, retry.base_ms * retry.factor ^ exponent)
  if retry.jitter == 'none' then
    return math.floor(whole)
  end
  -- 52 bits, exact in a double.
  local draw = tonumber(string.sub(redis.sha1hex(seed), 1, 13), 16) / 2 ^ 52
  local floor = retry.jitter == 'equal' and whole / 2 or 0
  return math.floor(floor + (whole - floor) * draw)
end

-- Lapse: a lease has ended; what ran is tried again, what was handed over is in doubt.

-- Takes everything from a worker whose lease has ended, or its first `most` jobs; its row is marked
-- and saved here, and the caller flushes the step.
--
-- What is left to it is fenced by the end of its lease. It is marked when nothing is left, so that
-- until then each sweep finds it, and a beat or claim of its own takes the rest from it first.
-- Returns how many runs it lost, and how many jobs were taken in all.
function Endings.lapse(step, worker, most)
  local held, ids = Jobs.held_by(worker.id, most), {}
  for place, one in ipairs(held) do
    ids[place] = one.id
  end
  Step.load(step, ids)
  local lost = 0
  for _, id in ipairs(ids) do
    local row = step.rows[id]
    if row.state == 'running' then
      Endings.lose(step, row)
      lost = lost + 1
    elseif row.state == 'awaiting' then
      Endings.doubt(step, row)
    end
  end
  worker.lapsed = most == nil or #held < most
  Workers.save(worker)
  Counts.happened('lost', lost)
  return lost, #held
end

-- A running job whose worker is gone: the attempt is used, the next follows by its policy.
function Endings.lose(step, row)
  Endings.fail(step, row, 'lost', "the worker's lease ended", 'lease lost')
end

-- An awaiting job whose worker died before its handler returned.
function Endings.doubt(step, row)
  row.last_worker, row.worker = row.worker or '', nil
  Step.changed(step, row)
  if JobRow.accepted(row) then
    -- The answer has come: there is nothing to doubt.
    return
  end
  row.in_doubt = true
  Endings.ask_provider(step, row)
end

-- Starts the kind's reconcile job, and gives it time before the deadline decides. Returns whether
-- the kind has one.
function Endings.ask_provider(step, row)
  local policy = Jobs.policy(row.policy)
  if policy.reconcile == nil then
    return false
  end
  row.reconciles = math.abs(row.reconciles) + 1
  row.deadline_at = math.max(row.deadline_at or 0, Time.now + policy.reconcile_within_ms)
  Step.changed(step, row)
  step.follow[#step.follow + 1] = NewJobs.reconcile_job(row, policy.reconcile)
  return true
end

-- An attempt failed: the next by the job's policy, or dead when they are used up. A retry without
-- a delay keeps the job's due time. Returns the job's state now.
function Endings.fail(step, row, outcome, error, reason)
  local retry = Jobs.policy(row.policy).retry
  if Endings.attempts_exhausted(retry, row.attempt) then
    return Step.finish(step, row, 'dead', outcome, { reason = reason, error = error })
  end
  local seed = row.id .. ':' .. string.format('%.0f', row.run)
  local delay = Endings.delay_ms(retry, row.attempt, seed)
  local due_at = nil
  if delay > 0 then
    due_at = Time.now + delay
  end
  Counts.happened('retried', 1)
  row.reason = reason
  return Step.requeue(step, row, outcome, { due_at = due_at, error = error })
end
