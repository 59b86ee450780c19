-- Restore: create jobs whose work is already under way, awaiting, with their permits.
-- needs: rules.cached_gates, base.codec, base.time, base.write, tables.counts, tables.jobs
-- needs: tables.permits, tables.signals, engine.gate_kinds, engine.gate_cache, engine.flow_of
-- needs: engine.horizon, engine.insert, engine.step, rules.apply_signal, rules.attempts
-- needs: rules.moves, rules.state
local Restore = {}

-- Take a job's permits at one gate, even beyond the gate's capacity.
local function take(step, row, use, one)
  local spec = GateCache.spec(step.cache, use.template)
  local rules = spec and GateKinds.of(spec.kind)
  if not rules or not rules.takes_permits then
    return
  end
  local member = rules.chooses_member and (one.members or {})[use.name] or ''
  if rules.chooses_member and member == '' then
    return
  end
  local gate, pool = GateKinds.permit_gate(spec.kind, use.name, member)
  row.members[use.name] = member
  CachedGates.count_taken(step.cache, gate, use.template, use.amount, pool)
  Permits.add({
    {
      gate = gate,
      job = row.id,
      run = row.run,
      pool = pool,
      amount = use.amount,
      since = one.since_at,
      hold = use.hold,
    },
  })
end

-- Return the number of the run that is under way; always a new one, so that no reference is used
-- twice.
local function run_of(row, one)
  local named = Signals.read_reference(one.signal_key)
  return math.max(row.run + 1, named and named[1] == row.id and named[2] or 0)
end

local function is_this_run(row, one)
  local known = Signals.known(one.signal_key) or {}
  return row.state == 'awaiting' and known[1] == row.id and known[2] == row.run
end

-- Create unknown jobs; a known job may have been edited since.
local function insert(step, request)
  local ids, new, replies = {}, {}, {}
  for place, one in ipairs(request.jobs) do
    ids[place] = one.job.id
  end
  local known = Jobs.known(ids)
  for _, one in ipairs(request.jobs) do
    if not known[one.job.id] then
      -- Its run started before it was restored, and no run may start before its job's creation.
      one.job.created_at = math.min(Time.now, one.since_at)
      new[#new + 1] = one.job
    end
  end
  local made, n = Insert.insert_new(step.cache, new, false), 0
  for place, one in ipairs(request.jobs) do
    if known[one.job.id] then
      replies[place] = { id = one.job.id, created = false }
    else
      n = n + 1
      replies[place] = made[n]
    end
  end
  return replies
end

-- Requeue jobs of which the store has an older state; queued ones stay so. Return their ids as a
-- set, or nil if there is none.
local function requeue_older(step, request, replies)
  local behind = nil
  for place, reply in ipairs(replies) do
    local one = request.jobs[place]
    local row = one.newer and not reply.created and Step.row(step, reply.id)
    if row and not State.FINAL[row.state] and not is_this_run(row, one) then
      if State.HELD[row.state] then
        Moves.requeue(step, row, 'lost', nil, false, 'the store was an older one')
      end
      behind = behind or {}
      behind[reply.id] = true
    end
  end
  return behind
end

-- Start a queued job that has been claimed elsewhere, at the stage at which it is under way.
local function start(step, row, one)
  local stage = FlowOf.stage_of(step, row, one.job.stage or '', one.job.gates or {})
  if row.state ~= 'waiting' then
    Step.move(step, row, 'waiting')
  end
  Step.move(step, row, 'running')
  row.stage, row.flow, row.keyed = stage.name, stage.flow, stage.keyed
end

local function take_up(step, row, one)
  -- It never ran here, so the states in between are skipped.
  Counts.move(row.lane, row.state, 'awaiting', 1)
  row.state = 'awaiting'
  row.run, row.attempt = run_of(row, one), row.attempt + 1
  row.claimed_at, row.handed_at = math.max(row.created_at, one.since_at), one.since_at
  row.error = ''
  row.deadline_at = Time.now + math.max(1, one.deadline_ms)
  row.care, row.in_doubt, row.gated = true, true, true
  for _, use in ipairs(one.job.gates or {}) do
    if use.hold == 'settled' then
      take(step, row, use, one)
    end
  end
  Signals.make_known(row.id .. ':' .. Codec.digits(row.run), row.id, row.run)
  Signals.make_known(one.signal_key, row.id, row.run)
  Step.changed(step, row)
  Attempts.ask_provider(step, row)
  ApplySignal.apply_kept(step, row, one.signal_key)
end

-- Create the jobs that are not known yet. Return {id, created} each, in order.
function Restore.run(request)
  Write.begin()
  Write.guarded()
  Time.keep()
  Horizon.begin(request)
  local step = Step.new()
  local replies, made, answer = insert(step, request), {}, {}
  for place, reply in ipairs(replies) do
    answer[place] = { reply.id, reply.created }
  end
  local behind = requeue_older(step, request, replies)
  if behind ~= nil then
    -- Returned permits, and jobs fed by them, must be written before more is taken.
    Step.flush(step)
    step = Step.unguarded()
  end
  for _, reply in ipairs(replies) do
    if reply.created or (behind ~= nil and behind[reply.id]) then
      made[#made + 1] = reply.id
    end
  end
  Step.load(step, made)
  for place, reply in ipairs(replies) do
    local row = step.rows[reply.id]
    -- A cascade without candidates ends at its creation, so it cannot be under way.
    if row ~= nil and State.QUEUED[row.state] then
      if not reply.created then
        start(step, row, request.jobs[place])
      end
      take_up(step, row, request.jobs[place])
    end
  end
  Step.flush(step)
  return answer
end
