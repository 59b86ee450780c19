-- One step of a verb on held or queued jobs: changes are gathered, then written.
--
-- A verb moves rows with `move` and the functions of `rules/moves`; `flush` writes rows, returns
-- permits, inserts follow-ups, and feeds, in that order.
-- python: stores.ledger.step.Step
-- needs: rules.cached_gates, rules.cascade, base.time, base.write, base.run, tables.gates, tables.jobs, tables.counts
-- needs: tables.permits, rules.state, engine.gate_cache, rules.feeding, engine.insert
local Step = {}

-- Create a step with a journal, because moves of jobs may be refused late, and must then leave
-- nothing behind.
function Step.new()
  Write.begin()
  return Step.unguarded()
end

-- Like `new`, for a verb that starts the journal itself if it may be refused.
function Step.unguarded()
  return {
    cache = GateCache.new(),
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

-- Load jobs that the step may change.
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

-- Return a job, loaded once in the step; nil if it does not exist.
function Step.row(step, id)
  if step.rows[id] == nil then
    Step.load(step, { id })
  end
  return step.rows[id]
end

-- Return the jobs that became dead in the step, provided that it loads no dead jobs.
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

-- Mark a row as changed.
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
  local waited_at = row.ticket or row.parked_at
  if row.ticket ~= nil then
    note_ticket(step, row.ticket, row.flow)
    row.ticket, row.ticket_amount = nil, 0
  end
  if row.parked_at ~= nil then
    -- A parked job may have blocked those after it.
    note_ticket(step, row.parked_at, row.flow)
    row.blocked_ms = row.blocked_ms + Time.now - row.parked_since
    row.parked_at, row.unfit, row.ticket_amount = nil, false, 0
  end
  for _, uses in ipairs({ Jobs.flow(row.flow).shared, row.keyed }) do
    for _, use in ipairs(uses) do
      if use.amount > 1 then
        local gate = use.name
        if waited_at and gate:find(Cascade.CANDIDATE, 1, true) then
          -- A cascade's job reserves at the gate of the candidate for whom it waits.
          gate = waited_at
        end
        step.reserved[#step.reserved + 1] = { gate, row.id }
      end
    end
  end
end

-- Move a job to another state, and count it.
function Step.move(step, row, new)
  State.check_move(row.state, new)
  if State.QUEUED[row.state] then
    leave_queue(step, row)
  end
  if row.state ~= new then
    Counts.move(row.lane, row.state, new, 1)
  end
  row.state = new
  Step.changed(step, row)
end

-- Return a held job's permits at a gate or of a hold (nil: any); a repetition has no effect.
function Step.give_back(step, row, gate, hold)
  step.releases[#step.releases + 1] = { job = row.id, gate = gate, hold = hold }
end

-- Return the amounts returned at each gate, in order.
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

-- Remove permits and count them as returned. Return the gates that now have room and may have
-- parked jobs.
function Step.return_permits(step, permits)
  Permits.remove(permits)
  return CachedGates.give_back_all(step.cache, amounts_of(permits))
end

-- Return all permits of ended jobs, and feed the gates.
--   jobs: ids, each once.
function Step.give_back_all(step, jobs)
  local freed = CachedGates.give_back_all(step.cache, Permits.remove_all(jobs))
  for _, gate in ipairs(freed) do
    Feeding.feed_gate(step.cache, gate)
  end
  GateCache.save(step.cache)
end

-- Return the permits held by the jobs of these releases, by job.
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
    Insert.insert_new(step.cache, follow, false, true)
  end
  if #then_jobs > 0 then
    step.then_jobs = {}
    Insert.insert_new(step.cache, then_jobs, false)
  end
end

-- Write all changes; the step may continue, and be flushed again.
function Step.flush(step)
  local freed = free_permits(step)
  for _, gate in ipairs(CachedGates.end_reservations(step.cache, step.reserved)) do
    freed[#freed + 1] = gate
  end
  step.reserved = {}
  step.releases = {}
  write_rows(step)
  insert_what_follows(step)
  for _, ticket in ipairs(step.tickets) do
    Feeding.feed_flow(step.cache, ticket.gate, ticket.flow, 1)
  end
  step.tickets, step.has_ticket = {}, {}
  for _, gate in ipairs(freed) do
    Feeding.feed_gate(step.cache, gate)
  end
  GateCache.save(step.cache)
end
