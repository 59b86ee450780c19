-- Packed rows of jobs, read once per script, and their separate values.
-- needs: base.keys, base.write, tables.job_record, tables.job_reading

local JobRows = {}

-- Rows read or written in this script; false for a job that does not exist.
local raws = {}
-- Separate values, as read or written, by letter and id.
local bodies = {}
-- The letters of a job's separate values, if they were read.
local letters_of = {}

-- Read the values that are not known yet, each once.
local function fetch(known, key, wanted)
  local missing = {}
  for place = 1, #wanted do
    local one = wanted[place]
    if known[one] == nil then
      known[one] = false
      missing[#missing + 1] = one
    end
  end
  local found = Write.read(key, missing)
  for place = 1, #missing do
    known[missing[place]] = found[place]
  end
  return known
end

-- Return packed rows by id, for at least these ids; false for a job that does not exist.
function JobRows.read(ids)
  return fetch(raws, Keys.jobs, ids)
end

-- Read separate values. Return them by place.
--   places: letter .. id; may repeat.
function JobRows.read_far(places)
  return fetch(bodies, Keys.bodies, places)
end

-- Return complete rows of existing jobs, by id.
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

-- Return the rows of existing jobs in the order of these ids, each once.
function JobRows.in_order(ids)
  local found, rows = JobRows.load(ids), {}
  for place = 1, #ids do
    rows[#rows + 1] = found[ids[place]]
    found[ids[place]] = nil
  end
  return rows
end

-- Create a batch of rows, which `write` writes.
function JobRows.batch()
  return { rows = {}, far = {}, gone = {} }
end

-- Add a packed row without new separate values.
function JobRows.put_raw(batch, id, raw)
  local rows = batch.rows
  local count = #rows
  rows[count + 1], rows[count + 2] = id, raw
  raws[id] = raw
end

-- Add a job's separate values that have changed.
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

-- Add a new job.
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

-- Add a changed row and its changed separate values.
--   old: its previous packed row.
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

-- Write the batch.
function JobRows.write(batch)
  Write.hdel(Keys.bodies, batch.gone)
  Write.hset(Keys.bodies, batch.far)
  Write.hset(Keys.jobs, batch.rows)
end

-- Delete existing jobs and their separate values.
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
