-- An operator's moves on jobs and their permits, each on the trail.
-- needs: base.time, base.write, base.run, tables.dedupe, tables.trail, tables.permits
-- needs: rules.cascade, engine.horizon, engine.new_jobs, engine.endings, engine.states
-- needs: engine.step, engine.feeding

local Act = {}

local VERBS = {}

function VERBS.cancel(step, row, request)
  if States.FINAL[row.state] then
    return 'refused'
  end
  if States.QUEUED[row.state] then
    local reason = request.reason ~= '' and request.reason or 'cancelled'
    Step.finish(step, row, 'cancelled', '', { reason = reason })
    return 'done'
  end
  row.cancel_requested, row.care = true, true
  Step.changed(step, row)
  return 'asked'
end

local function revive_key(row)
  local known = Dedupe.get(row.tenant, row.key)
  if known ~= nil and known.job == row.id then
    known.until_at = nil
    Dedupe.save({ known })
  end
end

local function edit_fields(row, edit)
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
  if edit.candidates ~= nil then
    row.cascade = Cascade.replace_left(row.cascade, edit.candidates)
  end
end

-- Whether the job is a cascade, if the edit has candidates.
local function can_be_edited(row, edit)
  return edit.candidates == nil or row.cascade ~= nil
end

-- Where the edit sends the job; nil where it stays.
local function stage_after(step, row, edit)
  local name = edit.stage or row.stage
  if edit.gates ~= nil then
    return Endings.stage_of(step, row, name, edit.gates)
  end
  if name == row.stage then
    return nil
  end
  return { name = name, flow = row.flow, keyed = row.keyed }
end

-- Moves a row to its queue, by its due time, and to its stage.
local function queue(step, row, stage)
  Step.move(step, row, row.due_at > Time.now and 'scheduled' or 'waiting')
  Endings.enter_stage(step, row, stage)
end

-- Ends a cascade that has no candidates left, as at its creation.
local function exhaust(step, row)
  if row.cascade ~= nil and Cascade.exhausted(row.cascade) then
    Step.finish(step, row, 'dead', '', { reason = 'exhausted' })
  end
end

function VERBS.retry(step, row, request)
  local retriable = row.state == 'dead' or row.state == 'cancelled'
  if not retriable or not can_be_edited(row, request.edit) then
    return 'refused'
  end
  local stage = stage_after(step, row, request.edit)
  Step.keep_run(step, row, row.outcome, Step.run_error(row))
  row.life = row.life + 1
  row.attempt = 0
  row.finished_at, row.purge_at, row.expires_at = nil, nil, nil
  row.reason, row.error, row.result = '', '', nil
  row.due_at, row.blocked_ms = Time.now, 0
  if row.cascade ~= nil then
    row.cascade = Cascade.begin_anew(row.cascade)
  end
  edit_fields(row, request.edit)
  queue(step, row, stage)
  if row.key ~= nil then
    revive_key(row)
  end
  Run.wake(row.lane, row.due_at)
  exhaust(step, row)
  return 'done'
end

function VERBS.run_now(step, row)
  if not States.QUEUED[row.state] then
    return 'refused'
  end
  if row.state == 'scheduled' then
    -- One that is due already, and only not promoted yet, keeps its place.
    row.due_at = math.min(row.due_at, Time.now)
    Step.move(step, row, 'waiting')
  end
  Run.wake(row.lane)
  return 'done'
end

function VERBS.edit(step, row, request)
  if not States.QUEUED[row.state] or not can_be_edited(row, request.edit) then
    return 'refused'
  end
  local stage = stage_after(step, row, request.edit)
  edit_fields(row, request.edit)
  -- Its place changes: it is looked at from its flow again, wherever it was parked.
  queue(step, row, stage)
  Run.wake(row.lane, row.due_at)
  exhaust(step, row)
  return 'done'
end

local function settle(step, row, request, state)
  if States.FINAL[row.state] then
    return 'refused'
  end
  if States.HELD[row.state] then
    -- The operator's word replaces a cancel that was asked for.
    row.cancel_requested = false
    row.worker, row.last_worker = nil, row.worker or row.last_worker
  end
  local reason = request.reason ~= '' and request.reason or state .. ' by ' .. request.author
  Step.finish(step, row, state, 'forced', { reason = reason })
  return 'done'
end

function VERBS.succeed(step, row, request)
  return settle(step, row, request, 'succeeded')
end

function VERBS.kill(step, row, request)
  return settle(step, row, request, 'dead')
end

local function act_on(step, request, id)
  local row = Step.row(step, id)
  if row == nil then
    return { id, 'unknown', false }
  end
  local answer = VERBS[request.verb](step, row, request)
  return { id, answer, row.state }
end

local function add_to_trail(request, replies)
  local lines = {}
  for _, reply in ipairs(replies) do
    if reply[2] == 'done' or reply[2] == 'asked' then
      lines[#lines + 1] = {
        at = Time.now,
        author = request.author,
        reason = request.reason,
        verb = request.verb,
        target = reply[1],
        detail = reply[2],
      }
    end
  end
  Trail.add(lines)
end

-- Does a move on each job. Returns {id, answer, state or false} each, in order; a repeated request
-- is answered as the first was.
function Act.run(request)
  local before = Trail.answer(request.request)
  if before ~= nil then
    return cmsgpack.unpack(before)
  end
  Horizon.begin(request)
  Write.freely()
  Time.keep()
  local step, replies = Step.new(), {}
  Step.load(step, request.ids)
  for place, id in ipairs(request.ids) do
    replies[place] = act_on(step, request, id)
  end
  Step.flush(step)
  add_to_trail(request, replies)
  Trail.keep_answer(request.request, cmsgpack.pack(replies))
  return replies
end

-- An operator takes a job's permits at a gate or pool by force. Returns whether it held any.
function Act.release_permit(request)
  local gate, permits = request.gate, {}
  for _, one in ipairs(Permits.of_jobs({ request.job })) do
    if one.gate == gate or one.pool == gate then
      permits[#permits + 1] = one
    end
  end
  if #permits == 0 then
    return false
  end
  Write.freely()
  Time.keep()
  local step = Step.new()
  for _, name in ipairs(Step.return_permits(step, permits)) do
    Feeding.feed_gate(step.book, name)
  end
  Step.flush(step)
  Trail.note(request.author, request.reason, 'release_permit', gate, request.job)
  return true
end
