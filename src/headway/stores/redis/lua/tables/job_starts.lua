-- Starts of jobs: the heads of flows, and the start of runs.
-- needs: base.keys, base.codec, base.write, base.time, tables.filing, tables.job_rows
-- needs: tables.job_reading, tables.job_filing

local JobStarts = {}

local pack, unpack_bytes = struct.pack, struct.unpack
local byte, sub = string.byte, string.sub

-- Return flows of a lane with waiting jobs, by number, after `after` (-1 for all).
function JobStarts.flows_waiting(lane, after, limit)
  local prefix = Codec.name(lane)
  local low, high = Codec.prefix(prefix)
  if after >= 0 then
    low = '(' .. prefix .. Codec.n4(after)
  end
  local found = redis.call('ZRANGEBYLEX', Keys.flowing, low, high, 'LIMIT', 0, limit)
  for place, member in ipairs(found) do
    found[place] = Codec.read4(member, #prefix + 1)
  end
  return found
end

-- Return the heads of jobs, with arguments.
function JobStarts.heads_of(ids)
  local raws, heads, places, far = JobRows.read(ids), {}, {}, {}
  for place = 1, #ids do
    local id = ids[place]
    local head = JobReading.head(raws[id], id)
    heads[place] = head
    if head.args == nil then
      places[#places + 1], far[#far + 1] = 'a' .. id, head
    end
  end
  if places[1] then
    local bodies = JobRows.read_far(places)
    for place, head in ipairs(far) do
      head.args = bodies[places[place]]
    end
  end
  return heads
end

-- Return the ids of the first waiting jobs of a flow, in order.
function JobStarts.waiting_ids(flow, limit)
  local low, high = Codec.prefix(Codec.n4(flow))
  local ids = redis.call('ZRANGEBYLEX', Keys.waiting, low, high, 'LIMIT', 0, limit)
  return Codec.cut(ids, 21)
end

-- Return the heads of the first waiting jobs of a flow, in order.
function JobStarts.heads(flow, limit)
  return JobStarts.heads_of(JobStarts.waiting_ids(flow, limit))
end

-- Reads a head when more than its order and id are needed.
local UNREAD = {
  __index = function(head, field)
    setmetatable(head, nil)
    for name, value in pairs(JobStarts.heads_of({ head.id })[1]) do
      head[name] = value
    end
    return head[field]
  end,
}

-- Return the heads of the first waiting jobs of a flow, in order; each is read when it is examined.
function JobStarts.unread_heads(flow, limit)
  local low, high = Codec.prefix(Codec.n4(flow))
  local heads = redis.call('ZRANGEBYLEX', Keys.waiting, low, high, 'LIMIT', 0, limit)
  for place, member in ipairs(heads) do
    local priority, due, seq = unpack_bytes('>I4I6I6', member, 5)
    local order = { priority = priority, due_at = due, seq = seq }
    heads[place] = setmetatable({ order = order, id = sub(member, 21) }, UNREAD)
  end
  return heads
end

-- Change a row for the start of a run.
local function begin(row, worker, request, blocked_ms)
  row.state = 'running'
  row.run, row.attempt = row.run + 1, row.attempt + 1
  row.worker, row.request = worker, request
  row.claimed_at = Time.now
  row.blocked_ms = row.blocked_ms + blocked_ms
  row.ticket, row.ticket_amount = nil, 0
end

local NOT_BLOCKED = { blocked_ms = 0 }

-- Start a waiting job whose row changes in more than its head.
local function start_whole(row, raw, start, worker, request, written, filed)
  local found, scores = JobFiling.of(row)
  begin(row, worker, request, start.blocked_ms)
  if start.members then
    row.members, row.gated = start.members, next(start.members) ~= nil
    row.candidate = start.candidate
    row.cascade = start.cascade or row.cascade
  end
  JobFiling.move(filed, found, scores, row.flow, row)
  JobRows.put(written, row, raw)
end

-- Make waiting jobs that take nothing running, claimed now, and increment `run` and `attempt`.
--   request: number of the worker's claim.
function JobStarts.start_plain(ids, worker, request)
  local raws = JobRows.read(ids)
  local written, filed = JobRows.batch(), Filing.batch()
  local gone, held, whole = {}, {}, {}
  local holder, length, now = Codec.name(worker), pack('>I2', #worker), Time.now
  for place = 1, #ids do
    local id = ids[place]
    local raw = raws[id]
    local flags = byte(raw, 2)
    if flags % 64 >= 32 then
      whole[#whole + 1] = id
    else
      local run, attempt, blocked, _, _ = unpack_bytes('>I4I4I6', raw, 33)
      local before = byte(raw, 72) * 256 + byte(raw, 73)
      JobRows.put_raw(
        written,
        id,
        'r'
          .. sub(raw, 2, 32)
          .. pack('>I4I4I6I6I6', run + 1, attempt + 1, blocked, request, now)
          .. sub(raw, 59, 71)
          .. length
          .. sub(raw, 74, 79)
          .. worker
          .. sub(raw, 80 + before)
      )
      gone[#gone + 1] = sub(raw, 3, 22) .. id
      held[#held + 1], held[#held + 2] = 0, holder .. id
      Filing.leave(filed, Codec.read4(raw, 3))
      if flags >= 128 and run == 0 then
        Filing.drop(filed, Keys.expiry, sub(raw, 17, 22) .. id)
      end
    end
  end
  Write.zrem(Keys.waiting, gone)
  Write.zadd(Keys.held, held)
  local rows = JobRows.load(whole)
  for _, id in ipairs(whole) do
    start_whole(rows[id], raws[id], NOT_BLOCKED, worker, request, written, filed)
  end
  JobRows.write(written)
  Filing.write(filed)
end

local packed_members = {}

-- Return the packed rest of a row with nothing but members; cached for starts that share them.
local function only_members(members)
  local known = packed_members[members]
  if known == nil then
    known = cmsgpack.pack({ members = members })
    packed_members[members] = known
  end
  return known
end

-- Return the packed row of a waiting job without a ticket after its start with permits; only the
-- changed parts are unpacked.
local function patched(raw, start, worker, request)
  local run, attempt, blocked = unpack_bytes('>I4I4I6', raw, 33)
  local before, last, size = unpack_bytes('>I2I2I4', raw, 72)
  local from, flags = 80 + before + last, byte(raw, 2)
  local rest, holds = '', next(start.members) ~= nil
  if size > 0 then
    local fields = cmsgpack.unpack(sub(raw, from, from + size - 1))
    -- Drop the members and the candidate of an earlier run.
    fields.members, fields.candidate = holds and start.members or nil, nil
    rest = next(fields) ~= nil and cmsgpack.pack(fields) or ''
  elseif holds then
    rest = only_members(start.members)
  end
  flags = flags - (flags % 4 >= 2 and 2 or 0) + (holds and 2 or 0)
  return 'r'
    .. string.char(flags)
    .. sub(raw, 3, 32)
    .. pack('>I4I4I6I6I6', run + 1, attempt + 1, blocked + start.blocked_ms, request, Time.now)
    .. sub(raw, 59, 71)
    .. pack('>I2', #worker)
    .. sub(raw, 74, 75)
    .. pack('>I4', #rest)
    .. worker
    .. sub(raw, 80 + before, from - 1)
    .. rest
    .. sub(raw, from + size)
end

-- File a waiting job without a ticket as running.
local function file_start(filed, raw, id, holder)
  Filing.drop(filed, Keys.waiting, sub(raw, 3, 22) .. id)
  Filing.add(filed, Keys.held, 0, holder .. id)
  Filing.leave(filed, Codec.read4(raw, 3))
  if byte(raw, 2) >= 128 and Codec.read4(raw, 33) == 0 then
    Filing.drop(filed, Keys.expiry, sub(raw, 17, 22) .. id)
  end
end

-- Like `start_plain`, with what each job takes; tickets are removed.
--   starts: an array of {id, members, candidate, cascade, blocked_ms}.
function JobStarts.start_gated(starts, worker, request)
  local ids, whole, slow = Codec.fields(starts, 'id'), {}, {}
  local raws, holder = JobRows.read(ids), Codec.name(worker)
  local written, filed = JobRows.batch(), Filing.batch()
  for _, start in ipairs(starts) do
    local id = start.id
    local raw = raws[id]
    if byte(raw, 2) % 64 >= 32 or start.candidate ~= '' or start.cascade then
      whole[#whole + 1], slow[#slow + 1] = id, start
    else
      JobRows.put_raw(written, id, patched(raw, start, worker, request))
      file_start(filed, raw, id, holder)
    end
  end
  local rows = JobRows.load(whole)
  for place, id in ipairs(whole) do
    start_whole(rows[id], raws[id], slow[place], worker, request, written, filed)
  end
  JobRows.write(written)
  Filing.write(filed)
end
