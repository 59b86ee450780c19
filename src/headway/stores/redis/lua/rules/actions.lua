-- Written by `make lua` from headway.stores.ledger.verbs.act: change that.
-- Act: an operator's actions on jobs, each recorded on the trail; and the release of a permit.
-- needs: base.run, base.time, engine.flow_of, engine.new_jobs, engine.step, rules.attempts,
-- needs: rules.cascade, rules.moves, tables.dedupe

local Actions = {}

local FINAL = { cancelled = true, dead = true, succeeded = true }
local HELD = { awaiting = true, running = true }
local QUEUED = { parked = true, scheduled = true, waiting = true }

function Actions.cancel(step, row, request)
  if FINAL[row.state] ~= nil then
    return 'refused'
  end
  if QUEUED[row.state] ~= nil then
    Moves.end_(step, row, 'cancelled', '', request.reason ~= '' and request.reason or 'cancelled', '')
    return 'done'
  end
  row.cancel_requested = true
  row.care = true
  Step.changed(step, row)
  return 'asked'
end

function Actions.retry(step, row, request)
  if not (row.state == 'dead' or row.state == 'cancelled') or not Actions.can_be_edited(row, request.edit) then
    return 'refused'
  end
  local stage = Actions.stage_after(step, row, request.edit)
  Moves.keep_run(step, row, row.outcome, Moves.run_error(row))
  local now = Time.now
  row.life = row.life + 1
  row.attempt = 0
  row.finished_at = nil
  row.purge_at = nil
  row.expires_at = nil
  row.reason = ''
  row.error = ''
  row.result = nil
  row.due_at = now
  row.blocked_ms = 0
  if row.cascade ~= nil then
    row.cascade = Cascade.reset(row.cascade)
  end
  Actions.edit_fields(row, request.edit)
  Step.move(step, row, row.due_at > now and 'scheduled' or 'waiting')
  Attempts.enter(step, row, stage)
  if row.key ~= nil then
    Dedupe.keep_key(row)
  end
  Run.wake(row.lane, row.due_at)
  Actions.exhaust(step, row)
  return 'done'
end

function Actions.run_now(step, row, _request)
  if QUEUED[row.state] == nil then
    return 'refused'
  end
  if row.state == 'scheduled' then
    -- A job that is due but not promoted yet keeps its place.
    row.due_at = math.min(row.due_at, Time.now)
    Step.move(step, row, 'waiting')
  end
  Run.wake(row.lane)
  return 'done'
end

function Actions.edit(step, row, request)
  if QUEUED[row.state] == nil or not Actions.can_be_edited(row, request.edit) then
    return 'refused'
  end
  local stage = Actions.stage_after(step, row, request.edit)
  Actions.edit_fields(row, request.edit)
  -- Its place changes: it goes back to its flow, even if it was parked.
  Step.move(step, row, row.due_at > Time.now and 'scheduled' or 'waiting')
  Attempts.enter(step, row, stage)
  Run.wake(row.lane, row.due_at)
  Actions.exhaust(step, row)
  return 'done'
end

function Actions.can_be_edited(row, edit)
  return edit.candidates == nil or row.cascade ~= nil
end

-- Return the stage to which the edit moves the job; None if it stays.
function Actions.stage_after(step, row, edit)
  local name = edit.stage == nil and row.stage or edit.stage
  if edit.gates ~= nil then
    return FlowOf.stage_of(step, row, name, edit.gates)
  end
  local value
  if name == row.stage then
    value = nil
  else
    value = { name = name, flow = row.flow, keyed = row.keyed }
  end
  return value
end

-- End a cascade that has no candidates left, as its creation would.
function Actions.exhaust(step, row)
  if row.cascade ~= nil and Cascade.exhausted(row.cascade) then
    Moves.end_(step, row, 'dead', '', 'exhausted', '')
  end
end

function Actions.edit_fields(row, edit)
  if edit.priority ~= nil then
    row.priority = edit.priority
  end
  if edit.due_at ~= nil then
    row.due_at = edit.due_at
  end
  if edit.args ~= nil then
    if row.body == '' then
      row.body = NewJobs.body_hash(row.kind, row.lane, row.tenant, row.subject, row.args)
    end
    row.args = edit.args
  end
  if edit.candidates ~= nil and row.cascade ~= nil then
    row.cascade = Cascade.replace_left(row.cascade, edit.candidates)
  end
end

function Actions.force(step, row, request)
  if FINAL[row.state] ~= nil then
    return 'refused'
  end
  if HELD[row.state] ~= nil then
    -- The operator's decision replaces a requested cancel.
    row.cancel_requested = false
    row.worker, row.last_worker = nil, row.worker ~= nil and row.worker ~= '' and row.worker or row.last_worker
  end
  local state = request.verb == 'succeed' and 'succeeded' or 'dead'
  Moves.end_(step, row, state, 'forced', request.reason ~= '' and request.reason or state .. ' by ' .. request.author, '')
  return 'done'
end

Actions.VERBS = {
  cancel = Actions.cancel,
  retry = Actions.retry,
  run_now = Actions.run_now,
  edit = Actions.edit,
  succeed = Actions.force,
  kill = Actions.force,
}
