-- What time brings to queued jobs: scheduled jobs become waiting, and of the fires of a timetable's
-- entry those that its policies leave.
-- needs: base.run, tables.jobs, tables.counts, rules.due_fires

local Promotion = {}

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
    for _, one in ipairs(DueFires.decide_fires(step, entry, fires[entry])) do
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
