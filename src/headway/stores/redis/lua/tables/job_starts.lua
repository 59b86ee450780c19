-- Jobs start and end: the heads of flows, and what a worker holds.
-- needs: base.keys, base.codec, base.write, base.time, tables.interned, tables.job_record, tables.job_rows, tables.job_filing

local JobStarts = {}

local pack, unpack_bytes = struct.pack, struct.unpack
local byte, sub = string.byte, string.sub

-- Flows of a lane with waiting jobs, by number, those above `after` (-1 for all).
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

-- Heads of jobs by their ids, arguments and all.
function JobStarts.heads_of(ids)
  local raws, heads, places, far = JobRows.read(ids), {}, {}, {}
  for place = 1, #ids do
    local id = ids[place]
    local head = JobRecord.head(raws[id], id)
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

-- The first waiting jobs of a flow, in order.
function JobStarts.heads(flow, limit)
  local low, high = Codec.prefix(Codec.n4(flow))
  local ids = redis.call('ZRANGEBYLEX', Keys.waiting, low, high, 'LIMIT', 0, limit)
  for place = 1, #ids do
    ids[place] = sub(ids[place], 21)
  end
  return JobStarts.heads_of(ids)
end

-- What begins with a run: it is written on the row.
local function begin(row, worker, request, blocked_ms)
  row.state = 'running'
  row.run, row.attempt = row.run + 1, row.attempt + 1
  row.worker, row.request = worker, request
  row.claimed_at = Time.now
  row.blocked_ms = row.blocked_ms + blocked_ms
  row.ticket, row.ticket_amount = nil, 0
end

-- Starts a waiting job whose row changes more than its head.
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

-- Waiting jobs that hold nothing become running, claimed now, `run` and `attempt` one up.
--   ids: the jobs.
--   worker: who.
--   request: its claim.
--   blocked_ms: behind shared gates; added to each.
function JobStarts.start_plain(ids, worker, request, blocked_ms)
  local raws = JobRows.read(ids)
  local written, filed = JobRows.batch(), JobFiling.batch()
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
          .. pack('>I4I4I6I6I6', run + 1, attempt + 1, blocked + blocked_ms, request, now)
          .. sub(raw, 59, 71)
          .. length
          .. sub(raw, 74, 79)
          .. worker
          .. sub(raw, 80 + before)
      )
      gone[#gone + 1] = sub(raw, 3, 22) .. id
      held[#held + 1], held[#held + 2] = 0, holder .. id
      JobFiling.leave(filed, Codec.read4(raw, 3))
      if flags >= 128 and run == 0 then
        JobFiling.drop(filed, Keys.expiry, sub(raw, 17, 22) .. id)
      end
    end
  end
  Write.zrem(Keys.waiting, gone)
  Write.zadd(Keys.held, held)
  local rows = JobRows.load(whole)
  for _, id in ipairs(whole) do
    local start = { blocked_ms = blocked_ms }
    start_whole(rows[id], raws[id], start, worker, request, written, filed)
  end
  JobRows.write(written)
  JobFiling.write(filed)
end

-- As `start_plain`, with what each holds; the ticket is gone.
--   starts: an array of {id, members, candidate, cascade, blocked_ms}.
function JobStarts.start_gated(starts, worker, request)
  local ids = {}
  for place, start in ipairs(starts) do
    ids[place] = start.id
  end
  local rows, raws = JobRows.load(ids), JobRows.read(ids)
  local written, filed = JobRows.batch(), JobFiling.batch()
  for _, start in ipairs(starts) do
    start_whole(rows[start.id], raws[start.id], start, worker, request, written, filed)
  end
  JobRows.write(written)
  JobFiling.write(filed)
end

-- Whether a packed row is a run of this worker whose end needs no care.
local function may_finish(raw, worker, run)
  if not raw or byte(raw, 1) ~= 114 or byte(raw, 2) % 2 == 1 then
    return false
  end
  local length = byte(raw, 72) * 256 + byte(raw, 73)
  return Codec.read4(raw, 33) == run and sub(raw, 80, 79 + length) == worker
end

-- Running jobs of this worker and run, with no need of care, become succeeded now.
--   runs: job, run, job, run, ...; no job twice.
-- Returns for each run, in the order asked, its lane, or false for one that was left untouched;
-- and whether any that ended had taken anything. Their permits are still out.
function JobStarts.finish_plain(worker, runs, purge_at)
  local ids = {}
  for place = 1, #runs, 2 do
    ids[#ids + 1] = runs[place]
  end
  local raws, written = JobRows.read(ids), JobRows.batch()
  local lanes, by_flow, gated = {}, {}, false
  local gone, purge = {}, {}
  local holder = Codec.name(worker)
  local ending = pack('>I6I6BI2I2', Time.now, purge_at, 1, 0, #worker)
  for place = 1, #ids do
    local id = ids[place]
    local raw = raws[id]
    if may_finish(raw, worker, runs[2 * place]) then
      local last = byte(raw, 74) * 256 + byte(raw, 75)
      local behind = 80 + #worker + last
      JobRows.put_raw(
        written,
        id,
        'S' .. sub(raw, 2, 58) .. ending .. sub(raw, 76, 79) .. worker .. sub(raw, behind)
      )
      gone[#gone + 1] = holder .. id
      purge[#purge + 1], purge[#purge + 2] = purge_at, sub(raw, 17, 22) .. id
      local flow = sub(raw, 3, 6)
      local lane = by_flow[flow] or Interned.flow(Codec.read4(flow, 1)).lane
      by_flow[flow], lanes[place] = lane, lane
      gated = gated or byte(raw, 2) % 4 >= 2
    else
      lanes[place] = false
    end
  end
  Write.zrem(Keys.held, gone)
  Write.zadd(Keys.purge, purge)
  JobRows.write(written)
  return lanes, gated
end

-- The ids of the jobs whose run a worker holds.
local function ids_held(worker)
  local prefix = Codec.name(worker)
  local low, high = Codec.prefix(prefix)
  local ids = redis.call('ZRANGEBYLEX', Keys.held, low, high)
  for place = 1, #ids do
    ids[place] = sub(ids[place], #prefix + 1)
  end
  return ids
end

-- The rows of jobs by ids, in order of start.
local function rows_in_order(ids)
  local rows, ordered = JobRows.load(ids), {}
  for _, row in pairs(rows) do
    ordered[#ordered + 1] = row
  end
  table.sort(ordered, function(one, other)
    if one.priority ~= other.priority then
      return one.priority < other.priority
    end
    if one.due_at ~= other.due_at then
      return one.due_at < other.due_at
    end
    return one.seq < other.seq
  end)
  return ordered
end

-- Running and awaiting jobs whose run this worker holds, as {id, run, request, state,
-- cancel_requested}, in order of start.
function JobStarts.held_by(worker)
  return rows_in_order(ids_held(worker))
end

-- How many those are.
function JobStarts.held_count(worker)
  local low, high = Codec.prefix(Codec.name(worker))
  return redis.call('ZLEXCOUNT', Keys.held, low, high)
end

-- Running jobs that this claim of the worker took, in order of start.
function JobStarts.taken_by(worker, request)
  local mine, raws = {}, nil
  local ids = ids_held(worker)
  raws = JobRows.read(ids)
  for _, id in ipairs(ids) do
    if byte(raws[id], 1) == 114 and Codec.read6(raws[id], 47) == request then
      mine[#mine + 1] = id
    end
  end
  return rows_in_order(mine)
end

-- Running and awaiting jobs by id, those above `after`.
--
-- They stand by worker; there are far fewer workers than jobs, and an audit is rare.
function JobStarts.held(after, limit)
  local ids, from = {}, '-'
  while true do
    local member = redis.call('ZRANGEBYLEX', Keys.held, from, '+', 'LIMIT', 0, 1)[1]
    if not member then
      break
    end
    local prefix = sub(member, 1, -37)
    local behind = Codec.behind(prefix)
    local some = redis.call('ZRANGEBYLEX', Keys.held, '(' .. prefix .. after, behind, 'LIMIT', 0, limit)
    for _, one in ipairs(some) do
      ids[#ids + 1] = sub(one, #prefix + 1)
    end
    from = '[' .. sub(behind, 2)
  end
  table.sort(ids, Codec.less)
  local first = {}
  for place = 1, math.min(limit, #ids) do
    first[place] = ids[place]
  end
  local rows = JobRows.load(first)
  for place, id in ipairs(first) do
    first[place] = rows[id]
  end
  return first
end
