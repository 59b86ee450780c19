-- The table of permits: rows that name their holders; a job holds at most one per gate.
-- python: stores.ledger.tables.PermitTable
-- needs: base.keys, base.codec, base.write
--
-- All permits of a job are stored together, because they start and end with its run. Members by
-- gate and time, and by gate and job, are for reads.

local Permits = {}

local n4, n6, name = Codec.n4, Codec.n6, Codec.name
-- Members read in one call.
local PAGE = 1000
-- Bytes of a job's id.
local ID = 36

-- A permit within its job's text: these numbers, then the names of its gate and pool.
--    1 run   5 since   11 amount   15 held for a run only   16 lengths of gate and pool
local RECORD, NAMES = '>I4I6I4BI2I2', 20
local pack, unpack_bytes = struct.pack, struct.unpack
local sub, byte, rep, char = string.sub, string.byte, string.rep, string.char
-- Minimum bytes of a text; see Codec.long. The padding is at the start, after its length.
local LONG = 65

local function encode(row)
  local gate, pool = row.gate, row.pool
  local hold = row.hold == 'run' and 1 or 0
  local numbers = pack(RECORD, row.run, row.since, row.amount, hold, #gate, #pool)
  return numbers .. gate .. pool
end

local function padded(text)
  local lacks = math.max(0, LONG - 1 - #text)
  return char(lacks) .. rep('\0', lacks) .. text
end

local function decode(job, text)
  local rows, at = {}, 1
  while at <= #text do
    local run, since, amount, hold, of_gate, of_pool = unpack_bytes(RECORD, text, at)
    local from = at + NAMES - 1
    at = from + of_gate + of_pool
    rows[#rows + 1] = {
      gate = sub(text, from, from + of_gate - 1),
      job = job,
      run = run,
      pool = sub(text, from + of_gate, at - 1),
      amount = amount,
      since = since,
      hold = hold == 1 and 'run' or 'settled',
    }
  end
  return rows
end

-- The permits of jobs as one text each, as read or written in this script; "" for none.
local texts = {}

-- Return the texts by job, for at least these jobs.
local function by_job(jobs)
  local wanted = {}
  for place = 1, #jobs do
    local job = jobs[place]
    if not texts[job] then
      texts[job] = ''
      wanted[#wanted + 1] = job
    end
  end
  local found = Write.read(Keys.permits_of, wanted)
  for place = 1, #wanted do
    local text = found[place]
    if text then
      texts[wanted[place]] = sub(text, 2 + byte(text, 1))
    end
  end
  return texts
end

-- Encoded names of gates; cached because a batch has many permits of few gates.
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

-- Return the jobs of permits, each once, in order.
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

-- Write all permits of these jobs.
local function write(jobs)
  local values, gone = {}, {}
  for place = 1, #jobs do
    local job = jobs[place]
    if texts[job] ~= '' then
      values[#values + 1], values[#values + 2] = job, padded(texts[job])
    else
      gone[#gone + 1] = job
    end
  end
  Write.hdel(Keys.permits_of, gone)
  Write.hset(Keys.permits_of, values)
end

-- Return a kind of permit, which permits share that differ only by job and run.
function Permits.kind(gate, pool, amount, since, hold)
  local numbers = pack('>I6I4BI2I2', since, amount, hold == 'run' and 1 or 0, #gate, #pool)
  local prefix = prefix_of(gate)
  return {
    text = numbers .. gate .. pool,
    name = prefix,
    before = prefix .. n6(since),
    behind = n4(amount),
  }
end

-- Add permits.
--   taken: kind, job, run, kind, job, run, ...; a job at most once per gate.
function Permits.take(taken)
  local jobs, seen, members, names = {}, {}, {}, {}
  for place = 2, #taken, 3 do
    local job = taken[place]
    if not seen[job] then
      seen[job] = true
      jobs[#jobs + 1] = job
    end
  end
  local held = by_job(jobs)
  for place = 1, #taken, 3 do
    local kind, job = taken[place], taken[place + 1]
    held[job] = held[job] .. n4(taken[place + 2]) .. kind.text
    local count = #members
    members[count + 1], members[count + 2] = 0, kind.before .. job .. kind.behind
    names[count + 1], names[count + 2] = 0, kind.name .. job
  end
  write(jobs)
  Write.zadd(Keys.permits, members)
  Write.zadd(Keys.permit_names, names)
end

-- Add permits.
--   rows: {gate, job, run, pool, amount, since, hold} each.
function Permits.add(rows)
  local taken = {}
  for place, row in ipairs(rows) do
    taken[3 * place - 2] = Permits.kind(row.gate, row.pool, row.amount, row.since, row.hold)
    taken[3 * place - 1], taken[3 * place] = row.job, row.run
  end
  Permits.take(taken)
end

-- Return the permits that jobs hold.
--   jobs: ids, each once.
function Permits.of_jobs(jobs)
  local held, found = by_job(jobs), {}
  for _, job in ipairs(jobs) do
    for _, row in ipairs(decode(job, held[job])) do
      found[#found + 1] = row
    end
  end
  return found
end

-- Remove a gate's permit from a job's text, and return it; nil if it is missing.
local function take_out(job, gate)
  local left, taken = {}, nil
  for _, row in ipairs(decode(job, texts[job])) do
    if row.gate == gate then
      taken = row
    else
      left[#left + 1] = encode(row)
    end
  end
  texts[job] = table.concat(left)
  return taken
end

-- Remove permits; missing ones are ignored.
function Permits.remove(rows)
  local jobs = jobs_of(rows)
  by_job(jobs)
  local members, names = {}, {}
  for _, row in ipairs(rows) do
    local old = take_out(row.job, row.gate)
    if old then
      members[#members + 1] = member_of(old)
      names[#names + 1] = prefix_of(old.gate) .. old.job
    end
  end
  Write.zrem(Keys.permits, members)
  Write.zrem(Keys.permit_names, names)
  write(jobs)
end

-- Remove all permits of jobs; used by most settlements, so it creates no rows.
--   jobs: ids, each once.
-- Return the amounts by gate, in order of first use: {gate, pool, amount}.
function Permits.remove_all(jobs)
  local held, members, names, gone = by_job(jobs), {}, {}, {}
  local sums, places = {}, {}
  for _, job in ipairs(jobs) do
    local text, at = held[job], 1
    if text ~= '' then
      gone[#gone + 1], texts[job] = job, ''
    end
    while at <= #text do
      local amount, _, of_gate, of_pool = unpack_bytes('>I4BI2I2', text, at + 10)
      local from = at + NAMES - 1
      local gate = sub(text, from, from + of_gate - 1)
      local sum, prefix = places[gate], prefix_of(gate)
      members[#members + 1] = prefix .. sub(text, at + 4, at + 9) .. job .. sub(text, at + 10, at + 13)
      names[#names + 1] = prefix .. job
      at = from + of_gate + of_pool
      if sum == nil then
        sum = { gate = gate, pool = sub(text, from + of_gate, at - 1), amount = 0 }
        sums[#sums + 1], places[gate] = sum, sum
      end
      sum.amount = sum.amount + amount
    end
  end
  Write.zrem(Keys.permits, members)
  Write.zrem(Keys.permit_names, names)
  Write.hdel(Keys.permits_of, gone)
  return sums
end

-- Return the permits of these (gate, job), in order.
local function rows_of(places)
  local jobs = jobs_of(places)
  local held, found = by_job(jobs), {}
  for _, place in ipairs(places) do
    for _, row in ipairs(decode(place.job, held[place.job])) do
      if row.gate == place.gate then
        found[#found + 1] = row
      end
    end
  end
  return found
end

-- Return the first permits of a gate, oldest first.
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

-- Return the number of permits of a gate; the cost does not grow with it.
function Permits.holders(gate)
  return redis.call('ZLEXCOUNT', Keys.permits, Codec.prefix(name(gate)))
end

-- Return the number of permits of a gate, and the sum of their amounts.
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

-- Return gates with permits out, by name, after `after`, with the sum of amounts: {gate, sum}.
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

-- Return permits by (gate, job), after `after`.
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
