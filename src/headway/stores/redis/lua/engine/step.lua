-- One step of a verb on jobs that are held or queued: what changes is gathered, then written.
--
-- A verb moves rows by `finish`, `requeue` and `move`; `flush` writes the rows, gives permits
-- back, inserts what follows, and feeds, in that order.
-- needs: base.time, base.write, base.run, tables.gates, tables.jobs, tables.counts
-- needs: tables.permits, tables.dedupe, rules.cascade, engine.states, engine.gate_book
-- needs: engine.gate_names, engine.feeding, engine.new_jobs, engine.insert
local Step = {}

-- What one verb changes. Whatever moves jobs may be refused late, and leaves nothing behind then.
function Step.new()
  Write.begin()
  return Step.unguarded()
end

-- As `new`, for a verb that begins the journal itself where it may be refused.
function Step.unguarded()
  return {
    book = GateBook.new(),
    rows = {},
    dirty = {},
    is_dirty = {},
    runs = {},
    releases = {},
    tickets = {},
    has_ticket = {},
    reserved = {},
    follow = {},
    then_jobs = {},
  }
end

-- Loads jobs that the step may change.
function Step.load(step, ids)
  local wanted = {}
  for _, id in ipairs(ids) do
    if step.rows[id] == nil then
      wanted[#wanted + 1] = id
    end
  end
  if #wanted > 0 then
    for id, row in pairs(Jobs.load(wanted)) do
      step.rows[id] = row
    end
  end
end

-- A job, loaded once in the step; nil if there is none.
function Step.row(step, id)
  if step.rows[id] == nil then
    Step.load(step, { id })
  end
  return step.rows[id]
end

-- The jobs that the step has made dead, as long as it loads none that were.
function Step.dead(step)
  local ids = {}
  for id, row in pairs(step.rows) do
    if row.state == 'dead' then
      ids[#ids + 1] = id
    end
  end
  table.sort(ids)
  return ids
end

-- The row is to be written.
function Step.changed(step, row)
  step.rows[row.id] = row
  if not step.is_dirty[row.id] then
    step.is_dirty[row.id] = true
    step.dirty[#step.dirty + 1] = row
  end
end

local function note_ticket(step, gate, flow)
  local place = flow .. ':' .. gate
  if not step.has_ticket[place] then
    step.has_ticket[place] = true
    step.tickets[#step.tickets + 1] = { gate = gate, flow = flow }
  end
end

local function leave_queue(step, row)
  if row.ticket ~= nil then
    note_ticket(step, row.ticket, row.flow)
    row.ticket, row.ticket_amount = nil, 0
  end
  if row.parked_at ~= nil then
    -- One that was parked may have held back those behind it.
    note_ticket(step, row.parked_at, row.flow)
    row.blocked_ms = row.blocked_ms + Time.now - row.parked_since
    row.parked_at, row.unfit = nil, false
  end
  for _, uses in ipairs({ Jobs.flow(row.flow).shared, row.keyed }) do
    for _, use in ipairs(uses) do
      if use.amount > 1 then
        step.reserved[#step.reserved + 1] = { gate = use.name, job = row.id }
      end
    end
  end
end

-- Moves a job to another state, and counts it.
function Step.move(step, row, new)
  States.check_move(row.state, new)
  if States.QUEUED[row.state] then
    leave_queue(step, row)
  end
  if row.state ~= new then
    Counts.move(row.lane, row.state, new, 1)
  end
  row.state = new
  Step.changed(step, row)
end

local function end_key(row, key_for_ms)
  local known = Dedupe.get(row.tenant, row.key)
  if known ~= nil and known.job == row.id then
    known.until_at = Time.now + key_for_ms
    Dedupe.save({ known })
  end
end

local function follows(policy, state)
  local follow = policy.on_final
  if follow ~= nil then
    for _, one in ipairs(follow.states) do
      if one == state then
        return follow
      end
    end
  end
  return nil
end

-- The error of the run that ends: never that of an earlier run of the job.
--
-- A row keeps the error of its last failed run until a hand-over clears it. From then on it has
-- what the handler of this run raised.
local function own_error(row, error)
  if error and error ~= '' then
    return error
  end
  return row.handed_at ~= nil and row.error or ''
end

-- The error of a job's last run, which has ended.
function Step.run_error(row)
  return row.outcome ~= '' and row.outcome ~= 'succeeded' and row.error or ''
end

-- Ends a job; a cancel that was asked for decides the state, the outcome stays on the run.
--
-- `row` is not final; `state` is what the run, signal, deadline or operator says; `outcome` is the
-- word kept on the run; `said` may hold reason, error and result. Returns the state in which it
-- ended.
function Step.finish(step, row, state, outcome, said)
  local held = States.HELD[row.state]
  if row.cancel_requested and held then
    state = 'cancelled'
  end
  if held then
    Step.give_back(step, row)
  end
  Step.move(step, row, state)
  local policy = Jobs.policy(row.policy)
  if held then
    row.outcome = outcome
    row.worker, row.last_worker = nil, row.worker or row.last_worker
  end
  row.reason = said.reason or ''
  if held and outcome ~= 'succeeded' then
    row.error = own_error(row, said.error)
  end
  if said.result ~= nil then
    row.result = said.result
  end
  row.finished_at = Time.now
  row.purge_at = Time.now + Jobs.kept_for(policy, row.key ~= nil)
  row.deadline_at, row.in_doubt, row.cancel_requested = nil, false, false
  Counts.happened(state, 1)
  if row.key ~= nil then
    end_key(row, policy.key_for_ms)
  end
  local follow = follows(policy, state)
  if follow ~= nil then
    step.follow[#step.follow + 1] = NewJobs.follow_up(row, follow)
  end
  return state
end

-- Puts a held job back into its queue. One with a requested cancel, or a cascade without candidates
-- left, ends instead.
--
-- `how` holds due_at (when it is due again; nil keeps its due time, and so its place), again
-- (whether the attempt is repeated, not used) and error. Returns the state in which it is now.
function Step.requeue(step, row, outcome, how)
  if row.cancel_requested then
    local said = { reason = 'cancelled', error = how.error }
    return Step.finish(step, row, 'cancelled', outcome, said)
  end
  if row.cascade ~= nil and Cascade.exhausted(row.cascade) then
    return Step.finish(step, row, 'dead', outcome, { reason = 'exhausted', error = how.error })
  end
  Step.give_back(step, row)
  local error = own_error(row, how.error)
  Step.keep_run(step, row, outcome, error)
  if how.due_at ~= nil then
    row.due_at, row.blocked_ms = how.due_at, 0
  end
  if how.again then
    row.attempt = row.attempt - 1
  end
  if error ~= '' then
    row.error = error
  end
  row.result = nil
  Step.move(step, row, row.due_at > Time.now and 'scheduled' or 'waiting')
  Run.wake(row.lane, row.due_at)
  return row.state
end

-- Writes the run that ends to the job's history, and makes room for the next.
function Step.keep_run(step, row, outcome, error)
  if row.claimed_at == nil then
    return
  end
  step.runs[#step.runs + 1] = {
    job = row.id,
    run = row.run,
    attempt = row.attempt,
    stage = row.stage,
    worker = row.worker or row.last_worker,
    claimed_at = row.claimed_at,
    handed_at = row.handed_at,
    ended_at = row.finished_at or Time.now,
    outcome = outcome,
    error = error or '',
    members = row.members,
    blocked_ms = row.blocked_ms,
    due_at = row.due_at,
    candidate = row.candidate,
  }
  row.worker, row.last_worker, row.claimed_at, row.handed_at = nil, '', nil, nil
  row.deadline_at, row.in_doubt, row.reconciles = nil, false, 0
  row.members, row.gated, row.outcome, row.progress = {}, false, '', nil
  row.candidate = ''
  Step.changed(step, row)
end

-- Gives back a held job's permits at a gate or of a hold (nil: any); twice is nothing.
function Step.give_back(step, row, gate, hold)
  step.releases[#step.releases + 1] = { job = row.id, gate = gate, hold = hold }
end

-- Closes gates on a handler's word.
function Step.close(step, closings, author)
  for _, closing in ipairs(closings or {}) do
    local until_at = closing.until_at
    if until_at == nil then
      until_at = closing.for_ms and Time.now + closing.for_ms or States.FOREVER
    end
    Step.close_gate(step, closing.gate, until_at, author, closing.reason or '')
  end
end

-- Closes a gate until a moment, or later if it is closed longer already.
--
-- Refuses with UnknownGate where nothing declares it; the step is rolled back then.
function Step.close_gate(step, gate, until_at, author, reason)
  local row = GateBook.find(step.book, gate)
  if row == nil then
    local place = GateNames.place_of(Gates.templates(), gate)
    row = GateBook.change(step.book, gate, place.template, place.pool)
  end
  row = GateBook.change(step.book, gate, row.template, row.pool)
  row.closed_until = math.max(row.closed_until or 0, until_at)
  row.closed_by, row.closed_reason = author, reason
  GateBook.forget_view(step.book, gate)
  if until_at < States.FOREVER then
    -- Jobs may be parked at it, or come to be: the moment must be noticed.
    Run.wake(nil, until_at)
    row.timer_at = row.timer_at and math.min(row.timer_at, until_at) or until_at
  end
end

local function is_keyed(step, gate)
  local row = GateBook.find(step.book, gate)
  if row == nil then
    return true
  end
  local spec = GateBook.spec(step.book, row.template)
  if spec == nil then
    -- A pool without a row of its own: its members know the template.
    return row.template ~= ''
  end
  return not spec.shared
end

-- Wakes the lanes that a shared gate turned away. They are forgotten: the next claim that finds the
-- gate shut remembers its lane again.
local function wake_waiting(step, gate)
  local row = GateBook.find(step.book, gate)
  if row == nil or #row.lanes == 0 then
    return
  end
  for _, lane in ipairs(row.lanes) do
    Run.wake(lane ~= Gates.ANY_LANE and lane or nil)
  end
  GateBook.change(step.book, gate, row.template, row.pool).lanes = {}
end

-- Wakes the lanes that shared gates blocked, and returns the keyed gates, to be fed.
local function have_room(step, gates)
  local freed, known = {}, {}
  for _, gate in ipairs(gates) do
    if not known[gate] then
      known[gate] = true
      if is_keyed(step, gate) then
        freed[#freed + 1] = gate
      else
        wake_waiting(step, gate)
      end
    end
  end
  return freed
end

-- Lets others take what was kept for jobs that left their queue; returns the gates to be fed.
local function end_reservations(step)
  local names, ended = {}, {}
  for place, one in ipairs(step.reserved) do
    names[place] = one.gate
  end
  GateBook.prefetch(step.book, names)
  for _, one in ipairs(step.reserved) do
    if GateBook.unreserve(step.book, one.gate, one.job) then
      ended[#ended + 1] = one.gate
    end
  end
  step.reserved = {}
  return have_room(step, ended)
end

-- What comes back at each gate, in order.
local function amounts_of(permits)
  local amounts, places = {}, {}
  for _, one in ipairs(permits) do
    local amount = places[one.gate]
    if amount == nil then
      amount = { gate = one.gate, pool = one.pool, amount = 0 }
      places[one.gate] = amount
      amounts[#amounts + 1] = amount
    end
    amount.amount = amount.amount + one.amount
  end
  return amounts
end

-- Counts permits as back. Returns the gates that have room now and may have jobs parked.
--   amounts: {gate, pool, amount} each, every gate once.
local function count_back(step, amounts)
  local names = {}
  for place, one in ipairs(amounts) do
    names[place] = one.gate
  end
  GateBook.prefetch(step.book, names)
  local gates = {}
  for _, one in ipairs(amounts) do
    GateBook.give_back(step.book, one.gate, one.amount)
    gates[#gates + 1] = one.gate
    if one.pool ~= '' then
      gates[#gates + 1] = one.pool
    end
  end
  return have_room(step, gates)
end

-- Removes permits and counts them as back. Returns the gates that have room now and may have jobs
-- parked.
function Step.return_permits(step, permits)
  Permits.remove(permits)
  return count_back(step, amounts_of(permits))
end

-- Gives back all that jobs hold which have ended, and feeds the gates.
--   jobs: ids, each once.
function Step.give_back_all(step, jobs)
  local freed = count_back(step, Permits.remove_all(jobs))
  for _, gate in ipairs(freed) do
    Feeding.feed_gate(step.book, gate)
  end
  GateBook.save(step.book)
end

-- The permits that the jobs of these releases hold, by job.
local function held_by_job(releases)
  local jobs, known = {}, {}
  for _, release in ipairs(releases) do
    if not known[release.job] then
      known[release.job] = {}
      jobs[#jobs + 1] = release.job
    end
  end
  for _, permit in ipairs(Permits.of_jobs(jobs)) do
    local held = known[permit.job]
    held[#held + 1] = permit
  end
  return known
end

local function free_permits(step)
  if #step.releases == 0 then
    return {}
  end
  local held = held_by_job(step.releases)
  local gone, is_gone = {}, {}
  for _, release in ipairs(step.releases) do
    local gate, hold = release.gate, release.hold
    for _, permit in ipairs(held[release.job]) do
      if
        not is_gone[permit]
        and (gate == nil or gate == permit.gate or gate == permit.pool)
        and (hold == nil or hold == permit.hold)
      then
        is_gone[permit] = true
        gone[#gone + 1] = permit
      end
    end
  end
  return #gone > 0 and Step.return_permits(step, gone) or {}
end

local function write_rows(step)
  if #step.dirty > 0 then
    local rows = step.dirty
    step.dirty, step.is_dirty = {}, {}
    Jobs.save(rows)
  end
  if #step.runs > 0 then
    local runs = step.runs
    step.runs = {}
    Jobs.add_runs(runs)
  end
end

local function insert_what_follows(step)
  local follow, then_jobs = step.follow, step.then_jobs
  if #follow > 0 then
    step.follow = {}
    Insert.insert_new(step.book, follow, false, true)
  end
  if #then_jobs > 0 then
    step.then_jobs = {}
    Insert.insert_new(step.book, then_jobs, false)
  end
end

-- Writes all of it; the step may go on and be flushed again.
function Step.flush(step)
  local freed = free_permits(step)
  for _, gate in ipairs(end_reservations(step)) do
    freed[#freed + 1] = gate
  end
  step.releases = {}
  write_rows(step)
  insert_what_follows(step)
  for _, ticket in ipairs(step.tickets) do
    Feeding.feed_flow(step.book, ticket.gate, ticket.flow)
  end
  step.tickets, step.has_ticket = {}, {}
  for _, gate in ipairs(freed) do
    Feeding.feed_gate(step.book, gate)
  end
  GateBook.save(step.book)
end
