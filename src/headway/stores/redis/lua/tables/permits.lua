-- The table of permits: rows that name their holders; a job holds at most one of a gate.
-- needs: base.keys, base.codec, base.write
--
-- All permits of a job stand together, for they come and go with its run. Members by gate and
-- moment, and by gate and job, are for those who look.

local Permits = {}

local n4, n6, name = Codec.n4, Codec.n6, Codec.name
-- Members read in one call.
local PAGE = 1000
-- Bytes of a job's id.
local ID = 36

local function encode(rows)
  local kept = {}
  for place, row in ipairs(rows) do
    kept[place] = { row.gate, row.run, row.pool, row.amount, row.since, row.hold == 'run' }
  end
  return Codec.long(cmsgpack.pack(kept))
end

local function decode(job, text)
  local rows = cmsgpack.unpack(text)
  for place, kept in ipairs(rows) do
    rows[place] = {
      gate = kept[1],
      job = job,
      run = kept[2],
      pool = kept[3],
      amount = kept[4],
      since = kept[5],
      hold = kept[6] and 'run' or 'settled',
    }
  end
  return rows
end

-- What jobs hold, as it was read or written in this script, by job.
local known = {}

-- The permits of jobs, an array by job, for these at least; empty for one that holds none.
local function by_job(jobs)
  local wanted = {}
  for _, job in ipairs(jobs) do
    if not known[job] then
      known[job] = {}
      wanted[#wanted + 1] = job
    end
  end
  for place, text in ipairs(Write.read(Keys.permits_of, wanted)) do
    if text then
      known[wanted[place]] = decode(wanted[place], text)
    end
  end
  return known
end

-- Names of gates as members begin with them: a batch has many permits of few gates.
local prefixes = {}

local function prefix_of(gate)
  local prefix = prefixes[gate]
  if not prefix then
    prefix = name(gate)
    prefixes[gate] = prefix
  end
  return prefix
end

local function member_of(row)
  return prefix_of(row.gate) .. n6(row.since) .. row.job .. n4(row.amount)
end

-- The jobs of permits, each once, in their order.
local function jobs_of(rows)
  local jobs, seen = {}, {}
  for _, row in ipairs(rows) do
    if not seen[row.job] then
      seen[row.job] = true
      jobs[#jobs + 1] = row.job
    end
  end
  return jobs
end

-- Writes all that each of these jobs holds.
local function write(jobs, held)
  local values, gone = {}, {}
  for _, job in ipairs(jobs) do
    if held[job][1] then
      values[#values + 1], values[#values + 2] = job, encode(held[job])
    else
      gone[#gone + 1] = job
    end
  end
  Write.hdel(Keys.permits_of, gone)
  Write.hset(Keys.permits_of, values)
end

-- Adds permits.
--   rows: {gate, job, run, pool, amount, since, hold} each.
function Permits.add(rows)
  local jobs = jobs_of(rows)
  local held, members, names = by_job(jobs), {}, {}
  for _, row in ipairs(rows) do
    local own = held[row.job]
    own[#own + 1] = row
    members[#members + 1], members[#members + 2] = 0, member_of(row)
    names[#names + 1], names[#names + 2] = 0, prefix_of(row.gate) .. row.job
  end
  write(jobs, held)
  Write.zadd(Keys.permits, members)
  Write.zadd(Keys.permit_names, names)
end

-- The permits that jobs hold.
--   jobs: ids, each once.
function Permits.of_jobs(jobs)
  local held, found = by_job(jobs), {}
  for _, job in ipairs(jobs) do
    for _, row in ipairs(held[job]) do
      found[#found + 1] = row
    end
  end
  return found
end

-- Takes a gate's permit out of what a job holds; nil if it is not there.
local function take(held, gate)
  for place, row in ipairs(held) do
    if row.gate == gate then
      return table.remove(held, place)
    end
  end
end

-- Removes these; one that is gone already is passed over.
function Permits.remove(rows)
  local jobs = jobs_of(rows)
  local held, members, names = by_job(jobs), {}, {}
  for _, row in ipairs(rows) do
    local old = take(held[row.job], row.gate)
    if old then
      members[#members + 1] = member_of(old)
      names[#names + 1] = prefix_of(old.gate) .. old.job
    end
  end
  Write.zrem(Keys.permits, members)
  Write.zrem(Keys.permit_names, names)
  write(jobs, held)
end

-- The permits of these (gate, job), an array in this order.
local function rows_of(places)
  local jobs = jobs_of(places)
  local held, found = by_job(jobs), {}
  for _, place in ipairs(places) do
    for _, row in ipairs(held[place.job]) do
      if row.gate == place.gate then
        found[#found + 1] = row
      end
    end
  end
  return found
end

-- The first holders of a gate, oldest first.
function Permits.at(gate, limit)
  local prefix = name(gate)
  local low, high = Codec.prefix(prefix)
  local places = redis.call('ZRANGEBYLEX', Keys.permits, low, high, 'LIMIT', 0, limit)
  for place, member in ipairs(places) do
    local at = #prefix + 7
    places[place] = { gate = gate, job = string.sub(member, at, at + ID - 1) }
  end
  return rows_of(places)
end

-- How many permit rows a gate has; the cost does not grow with them.
function Permits.holders(gate)
  return redis.call('ZLEXCOUNT', Keys.permits, Codec.prefix(name(gate)))
end

-- How many permit rows a gate has, and the sum of their amounts.
function Permits.count(gate)
  local prefix = name(gate)
  local low, high = Codec.prefix(prefix)
  local count, sum = 0, 0
  while true do
    local members = redis.call('ZRANGEBYLEX', Keys.permits, low, high, 'LIMIT', 0, PAGE)
    for _, member in ipairs(members) do
      sum = sum + Codec.read4(member, #member - 3)
    end
    count = count + #members
    if #members < PAGE then
      return count, sum
    end
    low = '(' .. members[PAGE]
  end
end

-- Gates that have permits out, by name, those above `after`, with the amounts' sum: {gate, sum}.
function Permits.sums(after, limit)
  local found, low = {}, '[' .. string.sub(Codec.behind(name(after)), 2)
  while #found < limit do
    local member = redis.call('ZRANGEBYLEX', Keys.permits, low, '+', 'LIMIT', 0, 1)[1]
    if not member then
      break
    end
    local gate, at = Codec.read_name(member, 1)
    local _, sum = Permits.count(gate)
    found[#found + 1] = { gate, sum }
    low = '[' .. string.sub(Codec.behind(string.sub(member, 1, at - 1)), 2)
  end
  return found
end

-- Permits by (gate, job), those above `after`.
--   after: {gate, job}.
function Permits.page(after, limit)
  local low = '(' .. name(after[1]) .. after[2]
  if after[1] == '' then
    low = '-'
  end
  local places = redis.call('ZRANGEBYLEX', Keys.permit_names, low, '+', 'LIMIT', 0, limit)
  for place, member in ipairs(places) do
    local gate, at = Codec.read_name(member, 1)
    places[place] = { gate = gate, job = string.sub(member, at) }
  end
  return rows_of(places)
end
