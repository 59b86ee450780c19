-- The table of jobs: rows, and how they are filed. See `JobTable`; this uses ids instead of seqs.
-- python: stores.ledger.tables.JobTable, stores.ledger.insert.kept_for
-- needs: base.keys, base.codec, base.write, tables.interned, tables.filing, tables.job_rows
-- needs: tables.job_arrivals, tables.job_starts, tables.job_held, tables.job_timing
-- needs: tables.job_parking, tables.job_listing, tables.dedupe, tables.signals
-- needs: tables.job_reading, tables.job_filing

local Jobs = {}

-- The rest of the table is in parts. A part is searched only for what none before it has, so that a
-- call creates only the functions of the parts that it uses.
local PARTS = {
  Interned, JobStarts, JobHeld, JobTiming, JobParking, JobArrivals, JobListing,
}
setmetatable(Jobs, {
  __index = function(_, name)
    for place = 1, #PARTS do
      local found = PARTS[place][name]
      if found then
        return found
      end
    end
  end,
})

-- File a new job; the two most frequent cases are handled first.
local function file_new(batch, row)
  if not (row.expires_at or row.entry or row.subject or row.ticket) then
    if row.state == 'waiting' then
      local order = Filing.order(row.flow, row.priority, row.due_at, row.seq)
      Filing.add(batch, Keys.waiting, 0, order .. row.id)
      Filing.fill(batch, row.flow)
      return
    elseif row.state == 'scheduled' then
      local due = struct.pack('>I6I6', row.due_at, row.seq)
      Filing.add(batch, Keys.scheduled, 0, Codec.name(row.lane) .. due .. row.id)
      return
    end
  end
  JobFiling.move(batch, nil, nil, nil, row)
end

-- Add jobs with new ids, and assign increasing `seq` values in this order.
function Jobs.insert(rows)
  local count = #rows
  if count == 0 then
    return
  end
  local seq = Write.hincrby(Keys.facts, 'seq', count) - count
  local written, filed = JobRows.batch(), Filing.batch()
  for place = 1, count do
    local row = rows[place]
    row.seq = seq + place
    JobRows.put_new(written, row)
    file_new(filed, row)
  end
  JobRows.write(written)
  Filing.write(filed)
  JobArrivals.add(rows)
end

-- Return which ids exist, as {id = true}.
function Jobs.known(ids)
  local raws, found = JobRows.read(ids), {}
  for place = 1, #ids do
    if raws[ids[place]] then
      found[ids[place]] = true
    end
  end
  return found
end

-- Return copies of existing jobs, by id.
function Jobs.load(ids)
  return JobRows.load(ids)
end

-- Return copies of existing jobs, each once, in this order.
function Jobs.in_order(ids)
  return JobRows.in_order(ids)
end

-- Return copies of jobs in any state by `seq`, after `after`.
function Jobs.arrived(after, limit)
  return JobRows.in_order(JobArrivals.walk(after, limit, false))
end

-- Write complete changed jobs; seq, id, lane, tenant, kind and created_at never change.
function Jobs.save(rows)
  local raws = JobRows.read(Codec.fields(rows, 'id'))
  local written, filed = JobRows.batch(), Filing.batch()
  for _, row in ipairs(rows) do
    local raw = raws[row.id]
    local old = JobReading.filed(raw, row.id)
    local found, scores = JobFiling.of(old)
    JobFiling.move(filed, found, scores, old.flow, row)
    JobRows.put(written, row, raw)
  end
  JobRows.write(written)
  Filing.write(filed)
end

-- Return how long a job is kept after its end, ms. Its key must return the job for `key_for_ms`, so
-- the job is kept as long.
function Jobs.kept_for(policy, keyed)
  if keyed then
    return math.max(policy.keep_ms, policy.key_for_ms)
  end
  return policy.keep_ms
end

-- Return the fields of a job's runs.
local function run_fields(row)
  local fields = {}
  for run = 1, row.run do
    fields[run] = row.id .. Codec.n4(run)
  end
  return fields
end

-- Delete jobs, each once, with their runs, known keys, events and deduplication keys. Their long
-- values are not read: together they may be hundreds of megabytes.
function Jobs.remove(ids)
  local raws = JobRows.read(ids)
  local gone, removed, fields, filed = {}, {}, {}, Filing.batch()
  for _, id in ipairs(ids) do
    if raws[id] then
      local row = JobReading.filed(raws[id], id)
      gone[#gone + 1], removed[#removed + 1] = row, id
      local found, scores = JobFiling.of(row)
      JobFiling.move(filed, found, scores, row.flow, nil)
      for _, field in ipairs(run_fields(row)) do
        fields[#fields + 1] = field
      end
      if row.key then
        Dedupe.forget(row.tenant, row.key, id)
      end
    end
  end
  Filing.write(filed)
  JobArrivals.remove(gone)
  JobRows.remove(removed)
  Write.hdel(Keys.runs, fields)
  Signals.forget_jobs(removed)
end

-- Store ended runs, by the names of RunRow.
function Jobs.add_runs(rows)
  local values = {}
  for _, row in ipairs(rows) do
    values[#values + 1] = row.job .. Codec.n4(row.run)
    values[#values + 1] = cmsgpack.pack(row)
  end
  Write.hset(Keys.runs, values)
end

-- Return the stored runs of each job, oldest first; an array by id, absent for none.
function Jobs.runs(ids)
  local rows, found = JobRows.load(ids), {}
  for id, row in pairs(rows) do
    local runs = {}
    for _, kept in ipairs(Write.read(Keys.runs, run_fields(row))) do
      if kept then
        runs[#runs + 1] = cmsgpack.unpack(kept)
      end
    end
    if runs[1] then
      found[id] = runs
    end
  end
  return found
end
