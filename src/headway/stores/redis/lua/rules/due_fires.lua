-- Written by `make lua` from headway.stores.ledger.promotion: change that.
-- Promotion of due jobs, with the misfire and overlap policies of timetable entries.
-- needs: base.python, base.time, engine.step, rules.moves, tables.counts, tables.declared,
-- needs: tables.jobs

local DueFires = {}

local MISSED_AFTER_MS = 60000
local QUEUED = { parked = true, scheduled = true, waiting = true }

-- Decide which of an entry's due fires become waiting; the others are folded.
--
-- After an outage, nothing is decided until all fires up to now have been inserted, so that the
-- misfire policy sees all of them.
function DueFires.decide_fires(step, entry, due)
  local row = Declared.entry(entry)
  if row == nil or row.spec == nil then
    return due
  end
  if row.ahead_until ~= nil and row.ahead_until < Time.now then
    return {}
  end
  local kept = DueFires.by_overlap(step, row.spec, DueFires.by_misfire(step, row.spec, due))
  local ids = {}
  for _, one in ipairs(kept) do
    ids[one.id] = true
  end
  local folded = {}
  for _, one in ipairs(due) do
    if ids[one.id] == nil then
      folded[#folded + 1] = one.id
    end
  end
  if #folded > 0 then
    Step.load(step, folded)
    for _, job in ipairs(folded) do
      DueFires.fold(step, row, step.rows[job])
    end
    Declared.save_entry(row)
  end
  return kept
end

-- End a fire that a policy skips, and count it.
function DueFires.fold(step, entry, job)
  Moves.end_(step, job, 'cancelled', '', 'folded', '')
  entry.folded = entry.folded + 1
  Counts.happened('folded')
end

function DueFires.by_misfire(step, spec, due)
  local late = Time.now - MISSED_AFTER_MS
  local missed = {}
  for _, one in ipairs(due) do
    if (one.fired_at or 0) < late then
      missed[#missed + 1] = one
    end
  end
  local fresh = {}
  for _, one in ipairs(due) do
    if (one.fired_at or 0) >= late then
      fresh[#fresh + 1] = one
    end
  end
  if spec.misfire == 'skip' then
    return fresh
  end
  if spec.misfire == 'once' then
    -- The fire that is due now makes up for all missed ones.
    return #fresh > 0 and fresh or { missed[#missed] }
  end
  local first = math.max(0, #missed - spec.misfire_cap)
  return Python.joined(Python.slice(missed, first + 1), fresh)
end

function DueFires.by_overlap(step, spec, due)
  if spec.overlap == 'all' or #due == 0 then
    return due
  end
  local ids = {}
  for _, one in ipairs(due) do
    ids[one.id] = true
  end
  local earlier = {}
  for _, job in ipairs(Jobs.of_entry(spec.name)) do
    if ids[job.id] == nil and (job.state ~= 'scheduled' or job.run ~= 0) then
      earlier[#earlier + 1] = job
    end
  end
  if spec.overlap == 'skip' then
    return #earlier > 0 and {} or Python.slice(due, 1, 1)
  end
  -- "one": at most one fire waits behind the running one.
  local is_any = false
  for _, job in ipairs(earlier) do
    if QUEUED[job.state] ~= nil then
      is_any = true
      break
    end
  end
  return is_any and {} or Python.slice(due, 1, 1)
end
