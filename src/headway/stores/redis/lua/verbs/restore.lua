-- Restore: jobs whose work is under way already are made, awaiting, with their permits.
-- needs: base.time, base.write, tables.counts, tables.permits, tables.signals
-- needs: engine.gate_book, engine.hearing, engine.horizon, engine.insert, engine.lapse
-- needs: engine.pool, engine.step
local Restore = {}

Restore.journal = true

-- Takes what a job holds at one gate, though that be more than the gate has.
local function take(step, row, use, one)
  local spec = GateBook.spec(step.book, use.template)
  if spec == nil or (spec.kind ~= 'slots' and spec.kind ~= 'pool') then
    return
  end
  local gate, pool = use.name, ''
  if spec.kind == 'pool' then
    local member = (one.members or {})[use.name]
    if member == nil then
      return
    end
    gate, pool = Pool.member_gate(use.name, member), use.name
    row.members[pool] = member
  else
    row.members[gate] = ''
  end
  GateBook.use_up(step.book, gate, use.template, use.amount, pool)
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

local function take_up(step, row, one)
  -- It never ran here: the states between are skipped, and only counted.
  Counts.move(row.lane, row.state, 'awaiting', 1)
  row.state = 'awaiting'
  row.run, row.attempt = 1, 1
  row.claimed_at, row.handed_at = one.since_at, one.since_at
  row.deadline_at = Time.now + math.max(1, one.deadline_ms)
  row.care, row.in_doubt, row.gated = true, true, true
  for _, use in ipairs(one.job.gates or {}) do
    if use.hold == 'settled' then
      take(step, row, use, one)
    end
  end
  Signals.make_known(Hearing.reference(row), row.id, 1)
  Signals.make_known(one.signal_key, row.id, 1)
  Step.changed(step, row)
  Lapse.ask_provider(step, row)
  Hearing.apply_kept(step, row, one.signal_key)
end

-- Makes the jobs that are not known yet. Returns {id, created} each, in order.
function Restore.run(request)
  Write.guarded()
  Time.keep()
  Horizon.begin(request)
  local step, jobs = Step.new(), {}
  for place, one in ipairs(request.jobs) do
    jobs[place] = one.job
  end
  local replies, made, answer = Insert.insert_new(step.book, jobs, true), {}, {}
  for place, reply in ipairs(replies) do
    answer[place] = { reply.id, reply.created }
    if reply.created then
      made[#made + 1] = reply.id
    end
  end
  Step.load(step, made)
  for place, reply in ipairs(replies) do
    -- A cascade without candidates is over as it is made, and so cannot be under way.
    if reply.created and step.rows[reply.id].state ~= 'dead' then
      take_up(step, step.rows[reply.id], request.jobs[place])
    end
  end
  Step.flush(step)
  return answer
end
