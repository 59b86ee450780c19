-- What time brings to queued jobs: fires fall due by the misfire and overlap policies, scheduled
-- jobs become waiting, and those that never started in time are dead.
-- needs: base.time, base.run, tables.declared, tables.jobs, tables.counts, engine.states
-- needs: engine.step

local Promotion = {}

-- A fire that is promoted later than this was missed.
local MISSED_AFTER_MS = 60000

local function by_misfire(entry, due)
  local spec = entry.spec
  local late = Time.now - MISSED_AFTER_MS
  local missed, fresh = {}, {}
  for _, one in ipairs(due) do
    local part = (one.fired_at or 0) < late and missed or fresh
    part[#part + 1] = one
  end
  if spec.misfire == 'skip' then
    return fresh
  end
  if spec.misfire == 'once' then
    -- What is due now makes up for all that were missed before it.
    return #fresh > 0 and fresh or { missed[#missed] }
  end
  if spec.misfire_cap == 0 then
    return fresh
  end
  local kept = {}
  for place = math.max(1, #missed - spec.misfire_cap + 1), #missed do
    kept[#kept + 1] = missed[place]
  end
  for _, one in ipairs(fresh) do
    kept[#kept + 1] = one
  end
  return kept
end

-- The entry's jobs, none of them among these, whose moments have fired and that are not final.
local function earlier_fires(entry, due)
  local ids, earlier = {}, {}
  for _, one in ipairs(due) do
    ids[one.id] = true
  end
  for _, job in ipairs(Jobs.of_entry(entry.name)) do
    if not ids[job.id] and (job.state ~= 'scheduled' or job.run > 0) then
      earlier[#earlier + 1] = job
    end
  end
  return earlier
end

local function by_overlap(entry, due)
  local overlap = entry.spec.overlap
  if overlap == 'all' or #due == 0 then
    return due
  end
  local earlier = earlier_fires(entry, due)
  if overlap == 'skip' then
    return #earlier > 0 and {} or { due[1] }
  end
  -- "one": at most one waits behind the one that runs.
  for _, job in ipairs(earlier) do
    if States.QUEUED[job.state] then
      return {}
    end
  end
  return { due[1] }
end

-- A fire that a policy leaves out ends, and is counted.
local function fold(step, entry, job)
  Step.finish(step, job, 'cancelled', '', { reason = 'folded' })
  entry.folded = entry.folded + 1
  Counts.happened('folded', 1)
end

local function fold_others(step, entry, due, kept)
  local is_kept, folded = {}, {}
  for _, one in ipairs(kept) do
    is_kept[one.id] = true
  end
  for _, one in ipairs(due) do
    if not is_kept[one.id] then
      folded[#folded + 1] = one.id
    end
  end
  if #folded == 0 then
    return
  end
  Step.load(step, folded)
  for _, id in ipairs(folded) do
    fold(step, entry, step.rows[id])
  end
  Declared.save_entry(entry)
end

local function ids_of(due)
  local ids = {}
  for place, one in ipairs(due) do
    ids[place] = one.id
  end
  return ids
end

-- Which of an entry's due fires become waiting; the others are folded.
--
-- While an entry's fires are not laid up to now, as after an outage, none is decided: the chore
-- that lays them ahead comes first, so that the misfire policy sees them all.
--
-- `entry` is its name, `due` its fires that are due; folded fires end in the step. Returns the ids
-- to promote.
function Promotion.decide_fires(step, entry, due)
  local row = Declared.entry(entry)
  if row == nil or row.spec == nil then
    return ids_of(due)
  end
  if row.ahead_until ~= nil and row.ahead_until < Time.now then
    return {}
  end
  local kept = by_overlap(row, by_misfire(row, due))
  fold_others(step, row, due, kept)
  return ids_of(kept)
end

local MAX_BATCH = 1000

-- The ids of due jobs of no entry, and the fires by their entries, in the order met.
local function sorted_out(due)
  local ids, entries, fires = {}, {}, {}
  for _, row in ipairs(due) do
    if row.entry == nil then
      ids[#ids + 1] = row.id
    else
      local some = fires[row.entry]
      if some == nil then
        some = {}
        fires[row.entry] = some
        entries[#entries + 1] = row.entry
      end
      some[#some + 1] = row
    end
  end
  return ids, entries, fires
end

-- Promotes what is due in a lane, at most 1000 jobs; fires that are folded end in the step.
-- Returns how many became waiting.
function Promotion.promote(step, lane)
  local due = Jobs.due(lane, MAX_BATCH)
  if #due == 0 then
    return 0
  end
  local ids, entries, fires = sorted_out(due)
  for _, entry in ipairs(entries) do
    for _, id in ipairs(Promotion.decide_fires(step, entry, fires[entry])) do
      ids[#ids + 1] = id
    end
  end
  if #ids > 0 then
    Jobs.promote(ids)
    Counts.move(lane, 'scheduled', 'waiting', #ids)
  end
  if #due == MAX_BATCH then
    Run.wake(lane)
  end
  return #ids
end

-- Ends queued jobs past their `expires_at`, at most `limit`. Returns how many ended.
function Promotion.expire(step, limit)
  local ids = Jobs.expired(limit)
  Step.load(step, ids)
  for _, id in ipairs(ids) do
    Step.finish(step, step.rows[id], 'dead', '', { reason = 'expired' })
  end
  return #ids
end
