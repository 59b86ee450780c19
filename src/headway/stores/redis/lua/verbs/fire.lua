-- Fire: a timetable entry's next moments are laid ahead as scheduled jobs.
-- needs: base.time, base.write, tables.entries
-- needs: engine.records, engine.gate_book, engine.horizon, engine.ids, engine.insert, engine.wakes
local Fire = {}

Fire.journal = true

local function job_of(row, moment)
  local id = Ids.derived_id({ 'fire', row.name, row.first_seen_at, row.revision, moment })
  local job = Records.replace(row.spec.job, {
    id = id,
    due_at = moment,
    entry = row.name,
    fired_at = moment,
  })
  job.key = nil
  return job
end

local function lay(row, moments)
  local jobs = {}
  for place, moment in ipairs(moments) do
    jobs[place] = job_of(row, moment)
  end
  local book = GateBook.new()
  Insert.insert_new(book, jobs, false, true)
  GateBook.save(book)
end

-- Lays the moments that are later than the last fired. Returns {fired, current}.
function Fire.run(request)
  local row = Entries.load(request.entry)
  local spec = row and row.spec
  if spec == nil or row.revision ~= request.revision or not spec.enabled then
    return { fired = {}, current = false }
  end
  Write.guarded()
  Time.keep()
  Horizon.begin(request)
  local fired, last = {}, row.last_fired
  for _, moment in ipairs(request.moments) do
    if last == nil or moment > last then
      fired[#fired + 1] = moment
      last = moment
    end
  end
  lay(row, fired)
  row.last_fired = last
  row.ahead_until = math.max(row.ahead_until or 0, request.ahead_until, last or 0)
  Entries.save(row)
  -- Due fires were held back until now.
  Wakes.wake(spec.job.lane)
  return { fired = fired, current = true }
end
