-- The packed rows of jobs, read once in a script, and what stands apart from them.
-- needs: base.keys, base.write, tables.job_record, tables.job_reading

local JobRows = {}

-- What was read or written in this script; false for a job that does not exist.
local raws = {}
-- What stands apart, as it was read or written, by letter and id.
local bodies = {}
-- The letters of what stands apart of a job, where they were looked up.
local letters_of = {}

-- Packed rows by id, for these ids at least; false for a job that does not exist.
function JobRows.read(ids)
  local missing = {}
  for place = 1, #ids do
    local id = ids[place]
    if raws[id] == nil then
      raws[id] = false
      missing[#missing + 1] = id
    end
  end
  local found = Write.read(Keys.jobs, missing)
  for place = 1, #missing do
    raws[missing[place]] = found[place]
  end
  return raws
end

-- Reads what stands apart.
--   places: letter .. id, each once or more often.
-- Returns the values by place.
function JobRows.read_far(places)
  local missing = {}
  for place = 1, #places do
    if bodies[places[place]] == nil then
      missing[#missing + 1] = places[place]
    end
  end
  local found = Write.read(Keys.bodies, missing)
  for place = 1, #missing do
    bodies[missing[place]] = found[place]
  end
  return bodies
end

-- The jobs that exist, whole, by id.
function JobRows.load(ids)
  local found, places, waiting = {}, {}, {}
  JobRows.read(ids)
  for place = 1, #ids do
    local id = ids[place]
    local raw = raws[id]
    if raw and not found[id] then
      local row, letters = JobReading.unpack(raw, id)
      letters_of[id] = letters
      found[id] = row
      if letters ~= '' then
        for letter in string.gmatch(letters, '.') do
          places[#places + 1] = letter .. id
          waiting[#waiting + 1] = { row, JobReading.FIELDS[letter], letter .. id }
        end
      end
    end
  end
  if places[1] then
    JobRows.read_far(places)
    for _, one in ipairs(waiting) do
      one[1][one[2]] = bodies[one[3]]
    end
  end
  return found
end

-- The rows of jobs in the order of these ids, each once; one that does not exist is left out.
function JobRows.in_order(ids)
  local found, rows = JobRows.load(ids), {}
  for place = 1, #ids do
    rows[#rows + 1] = found[ids[place]]
    found[ids[place]] = nil
  end
  return rows
end

-- Rows to be written; `write` writes them.
function JobRows.batch()
  return { rows = {}, far = {}, gone = {} }
end

-- Adds a packed row of which nothing stands apart that did not before.
function JobRows.put_raw(batch, id, raw)
  local rows = batch.rows
  local count = #rows
  rows[count + 1], rows[count + 2] = id, raw
  raws[id] = raw
end

-- Adds what stands apart of a job where that has changed.
local function put_far(batch, id, far)
  for letter, value in pairs(far) do
    local place = letter .. id
    if bodies[place] ~= value then
      bodies[place] = value
      batch.far[#batch.far + 1] = place
      batch.far[#batch.far + 1] = value
    end
  end
end

-- Adds a new job.
function JobRows.put_new(batch, row)
  local raw, far
  if row.state == 'waiting' or row.state == 'scheduled' then
    raw, far = JobRecord.pack_queued(row)
  else
    raw, far = JobRecord.pack(row)
  end
  JobRows.put_raw(batch, row.id, raw)
  if far then
    put_far(batch, row.id, far)
  end
end

-- Adds a changed row, and what stands apart of it where that has changed.
--   old: its packed row of before.
function JobRows.put(batch, row, old)
  local raw, far = JobRecord.pack(row)
  local id = row.id
  JobRows.put_raw(batch, id, raw)
  if far then
    put_far(batch, id, far)
  end
  local letters = letters_of[id] or JobReading.far_of(old)
  letters_of[id] = nil
  if letters == '' then
    return
  end
  for letter in string.gmatch(letters, '.') do
    if not (far and far[letter]) then
      bodies[letter .. id] = nil
      batch.gone[#batch.gone + 1] = letter .. id
    end
  end
end

-- Writes what was added.
function JobRows.write(batch)
  Write.hdel(Keys.bodies, batch.gone)
  Write.hset(Keys.bodies, batch.far)
  Write.hset(Keys.jobs, batch.rows)
end

-- Forgets jobs that exist, and what stands apart of them.
function JobRows.remove(ids)
  local gone = {}
  for _, id in ipairs(ids) do
    for letter in string.gmatch(JobReading.far_of(raws[id]), '.') do
      gone[#gone + 1] = letter .. id
    end
    raws[id] = false
  end
  Write.hdel(Keys.bodies, gone)
  Write.hdel(Keys.jobs, ids)
end
