-- Promotion: due scheduled jobs become waiting; of a timetable entry's fires, those that its
-- policies select.
-- needs: base.run, tables.jobs, tables.counts, rules.due_fires

local Promotion = {}

local MAX_BATCH = 1000

-- Return the ids of due jobs without an entry, and fires by entry, in order of first use.
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

-- Promote up to 1000 due jobs of a lane, and further fires of the same entries; folded fires end in
-- the step. Return how many became waiting.
function Promotion.promote(step, lane)
  local due = Jobs.due(lane, MAX_BATCH)
  if #due == 0 then
    return 0
  end
  local ids, entries, fires = sorted_out(due)
  for _, entry in ipairs(entries) do
    local whole = #due < MAX_BATCH and fires[entry] or DueFires.due_fires(step, entry)
    for _, one in ipairs(DueFires.decide_fires(step, entry, whole)) do
      ids[#ids + 1] = one.id
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
