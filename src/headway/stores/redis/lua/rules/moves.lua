-- Written by `make lua` from headway.stores.ledger.step: change that.
-- One step of a verb on held or queued jobs: changes are collected, then written.
--
-- A verb changes rows with `end`, `requeue` and `move`. `flush` returns permits, writes the rows,
-- inserts follow-ups, and feeds, in that order.
-- needs: base.python, base.run, base.time, engine.gate_book, engine.new_jobs, engine.step,
-- needs: rules.book, rules.cascade, tables.counts, tables.dedupe, tables.jobs

local Moves = {}

local FOREVER = 253402300800000
local HELD = { awaiting = true, running = true }

-- End a job; a held job with a requested cancel ends as cancelled.
function Moves.end_(self, row, state, outcome, reason, error, result)
  local held = HELD[row.state] ~= nil
  if row.cancel_requested and held then
    state = 'cancelled'
  end
  if held then
    Step.give_back(self, row)
  end
  Step.move(self, row, state)
  local policy = Jobs.policy(row.policy)
  local now = Time.now
  if held then
    row.outcome = outcome
    row.worker, row.last_worker = nil, row.worker ~= nil and row.worker ~= '' and row.worker or row.last_worker
  end
  row.reason = reason
  if held and outcome ~= 'succeeded' then
    row.error = Moves.own_error(row, error)
  end
  if result ~= nil then
    row.result = result
  end
  row.finished_at = now
  row.purge_at = now + Jobs.kept_for(policy, row.key ~= nil)
  row.deadline_at, row.in_doubt, row.cancel_requested = nil, false, false
  Counts.happened(state)
  if row.key ~= nil then
    Dedupe.keep_key(row, now + policy.key_for_ms)
  end
  local follow = policy.on_final
  if follow ~= nil and Python.find(follow.states, state) ~= nil then
    table.insert(self.follow, NewJobs.follow_up(row, follow))
  end
  return state
end

-- Put a held job back into its queue.
--
-- A job with a requested cancel, or a cascade with no candidates left, ends instead.
function Moves.requeue(self, row, outcome, due_at, repeat_, error)
  if row.cancel_requested then
    return Moves.end_(self, row, 'cancelled', outcome, 'cancelled', error)
  end
  if row.cascade ~= nil and Cascade.exhausted(row.cascade) then
    return Moves.end_(self, row, 'dead', outcome, 'exhausted', error)
  end
  Step.give_back(self, row)
  error = Moves.own_error(row, error)
  Moves.keep_run(self, row, outcome, error)
  if due_at ~= nil then
    row.due_at, row.blocked_ms = due_at, 0
  end
  if repeat_ then
    row.attempt = row.attempt - 1
  end
  row.error, row.result = error ~= '' and error or row.error, nil
  Step.move(self, row, row.due_at > Time.now and 'scheduled' or 'waiting')
  Run.wake(row.lane, row.due_at)
  return row.state
end

-- Add the ending run to the job's history, and reset the row for the next run.
function Moves.keep_run(self, row, outcome, error)
  if row.claimed_at == nil then
    return
  end
  table.insert(self.runs, Moves.run_of(row, row.finished_at ~= nil and row.finished_at ~= 0 and row.finished_at or Time.now, outcome, error))
  row.worker, row.last_worker, row.claimed_at, row.handed_at = nil, '', nil, nil
  row.deadline_at, row.in_doubt, row.reconciles = nil, false, 0
  row.members, row.gated, row.outcome, row.progress = {}, false, '', nil
  row.candidate = ''
  Step.changed(self, row)
end

-- Close gates that a handler asked to close.
function Moves.close(self, closings, author)
  for _, closing in ipairs(closings) do
    local until_ = closing.until_at
    if until_ == nil then
      until_ = closing.for_ms == nil and FOREVER or Time.now + closing.for_ms
    end
    Moves.close_gate(self, closing.gate, until_, author, closing.reason)
  end
end

-- Close a gate until a given time; a later end of its current closing is kept.
function Moves.close_gate(self, gate, until_, author, reason)
  local row = GateBook.find(self.book, gate)
  if row == nil then
    local found = GateBook.place_of(self.book, gate)
    local template, pool = found.template, found.pool
    row = GateBook.change(self.book, gate, template, pool)
  end
  row = GateBook.change(self.book, gate, row.template, row.pool)
  row.closed_until = math.max(row.closed_until or 0, until_)
  row.closed_by, row.closed_reason = author, reason
  Book.forget_view(self.book, gate)
  if until_ < FOREVER then
    -- Jobs may be parked there by then, so a timer must process its opening.
    Run.wake(nil, until_)
    row.timer_at = row.timer_at == nil and until_ or math.min(row.timer_at, until_)
  end
end

-- Return the last run of a job, which must have been claimed.
function Moves.run_of(row, ended_at, outcome, error)
  return {
    job = row.id,
    run = row.run,
    attempt = row.attempt,
    stage = row.stage,
    worker = row.worker ~= nil and row.worker ~= '' and row.worker or row.last_worker,
    claimed_at = row.claimed_at or 0,
    handed_at = row.handed_at,
    ended_at = ended_at,
    outcome = outcome,
    error = error,
    members = row.members,
    blocked_ms = row.blocked_ms,
    due_at = row.due_at,
    candidate = row.candidate,
  }
end

-- Return the error of a job's last run, which must have ended.
function Moves.run_error(row)
  return not (row.outcome == '' or row.outcome == 'succeeded') and row.error or ''
end

-- Return the error of the ending run, never that of an earlier run of the job.
--
-- A row keeps the error of its last failed run until a hand-over clears it. From then on, the
-- row's error is what this run's handler raised.
function Moves.own_error(row, error)
  return error ~= '' and error or (row.handed_at ~= nil and row.error or '')
end
