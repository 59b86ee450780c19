-- Fires that fall due: the misfire policy first, then overlap.
-- needs: base.time, tables.entries, tables.jobs, tables.counts, engine.states, engine.step
local Overlap = {}

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

-- A fire that is not wanted ends, and is counted.
function Overlap.fold(step, entry, job, reason)
  Step.finish(step, job, 'cancelled', '', { reason = reason })
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
    Overlap.fold(step, entry, step.rows[id], 'folded')
  end
  Entries.save(entry)
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
function Overlap.decide_fires(step, entry, due)
  local row = Entries.load(entry)
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
