-- Lapse: a lease has ended; what ran is tried again, what was handed over is in doubt.
-- needs: base.time, tables.jobs, tables.workers, tables.counts
-- needs: rules.job_row, engine.follow_ups, engine.retry, engine.step
local Lapse = {}

-- Takes everything from a worker whose lease has ended, or its first `most` jobs; its row is marked
-- and saved here, and the caller flushes the step.
--
-- What is left to it is fenced by the end of its lease. It is marked when nothing is left, so that
-- until then each sweep finds it, and a beat or claim of its own takes the rest from it first.
-- Returns how many runs it lost, and how many jobs were taken in all.
function Lapse.lapse(step, worker, most)
  local held, ids = Jobs.held_by(worker.id, most), {}
  for place, one in ipairs(held) do
    ids[place] = one.id
  end
  Step.load(step, ids)
  local lost = 0
  for _, id in ipairs(ids) do
    local row = step.rows[id]
    if row.state == 'running' then
      Lapse.lose(step, row)
      lost = lost + 1
    elseif row.state == 'awaiting' then
      Lapse.doubt(step, row)
    end
  end
  worker.lapsed = most == nil or #held < most
  Workers.save(worker)
  Counts.happened('lost', lost)
  return lost, #held
end

-- A running job whose worker is gone: the attempt is used, the next follows by its policy.
function Lapse.lose(step, row)
  Lapse.fail(step, row, 'lost', "the worker's lease ended", 'lease lost')
end

-- An awaiting job whose worker died before its handler returned.
function Lapse.doubt(step, row)
  row.last_worker, row.worker = row.worker or '', nil
  Step.changed(step, row)
  if JobRow.accepted(row) then
    -- The answer has come: there is nothing to doubt.
    return
  end
  row.in_doubt = true
  Lapse.ask_provider(step, row)
end

-- Starts the kind's reconcile job, and gives it time before the deadline decides. Returns whether
-- the kind has one.
function Lapse.ask_provider(step, row)
  local policy = Jobs.policy(row.policy)
  if policy.reconcile == nil then
    return false
  end
  row.reconciles = math.abs(row.reconciles) + 1
  row.deadline_at = math.max(row.deadline_at or 0, Time.now + policy.reconcile_within_ms)
  Step.changed(step, row)
  step.follow[#step.follow + 1] = FollowUps.reconcile_job(row, policy.reconcile)
  return true
end

-- An attempt failed: the next by the job's policy, or dead when they are used up. A retry without
-- a delay keeps the job's due time. Returns the job's state now.
function Lapse.fail(step, row, outcome, error, reason)
  local retry = Jobs.policy(row.policy).retry
  if Retry.exhausted(retry, row.attempt) then
    return Step.finish(step, row, 'dead', outcome, { reason = reason, error = error })
  end
  local seed = row.id .. ':' .. string.format('%.0f', row.run)
  local delay = Retry.delay_ms(retry, row.attempt, seed)
  local due_at = nil
  if delay > 0 then
    due_at = Time.now + delay
  end
  Counts.happened('retried', 1)
  row.reason = reason
  return Step.requeue(step, row, outcome, { due_at = due_at, error = error })
end
