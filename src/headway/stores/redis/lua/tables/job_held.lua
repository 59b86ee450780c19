-- Jobs held by workers, running and awaiting; and the plain end of a run.
-- needs: base.keys, base.codec, base.write, base.time, tables.job_rows, tables.interned

local JobHeld = {}

local byte, sub = string.byte, string.sub

-- Return the ids of jobs whose run a worker holds.
local function ids_held(worker)
  local prefix = Codec.name(worker)
  local low, high = Codec.prefix(prefix)
  local ids = redis.call('ZRANGEBYLEX', Keys.held, low, high)
  return Codec.cut(ids, #prefix + 1)
end

-- Return the rows of jobs, in order of start.
local function rows_in_order(ids)
  local ordered = JobRows.in_order(ids)
  table.sort(ordered, Codec.before)
  return ordered
end

-- Return running and awaiting jobs whose run this worker holds, in order of start; up to `limit`,
-- or all if it is nil.
function JobHeld.held_by(worker, limit)
  local rows = rows_in_order(ids_held(worker))
  for place = #rows, (limit or #rows) + 1, -1 do
    rows[place] = nil
  end
  return rows
end

-- Return how many jobs a worker holds.
function JobHeld.held_count(worker)
  local low, high = Codec.prefix(Codec.name(worker))
  return redis.call('ZLEXCOUNT', Keys.held, low, high)
end

-- Return running jobs that the worker took with this claim, in order of start.
function JobHeld.taken_by(worker, request)
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

-- Return running and awaiting jobs by id, after `after`.
--
-- They are filed by worker; there are far fewer workers than jobs, and an audit is rare.
function JobHeld.held(after, limit)
  local ids, from = {}, '-'
  while true do
    local member = redis.call('ZRANGEBYLEX', Keys.held, from, '+', 'LIMIT', 0, 1)[1]
    if not member then
      break
    end
    local prefix = sub(member, 1, -37)
    local behind = Codec.behind(prefix)
    local low = '(' .. prefix .. after
    local some = redis.call('ZRANGEBYLEX', Keys.held, low, behind, 'LIMIT', 0, limit)
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
  return JobRows.in_order(first)
end

-- The plain end of jobs, which must be fast.

local pack = struct.pack

-- Remove the reason from a packed row, as a success does. Return the encoded new length of its rest,
-- and the row from the rest on; nil if it has no reason.
--   from: position of the rest.
local function without_reason(raw, from)
  local size = Codec.read4(raw, 76)
  local rest = size > 0 and sub(raw, from, from + size - 1) or ''
  if not string.find(rest, 'reason', 1, true) then
    return nil
  end
  local fields = cmsgpack.unpack(rest)
  fields.reason = nil
  rest = next(fields) ~= nil and cmsgpack.pack(fields) or ''
  return Codec.n4(#rest), rest .. sub(raw, from + size)
end

-- Return whether a packed row is a run of this worker whose end needs no care.
local function may_finish(raw, worker, run)
  if not raw or byte(raw, 1) ~= 114 or byte(raw, 2) % 2 == 1 then
    return false
  end
  local length = byte(raw, 72) * 256 + byte(raw, 73)
  return Codec.read4(raw, 33) == run and sub(raw, 80, 79 + length) == worker
end

-- Make running jobs of this worker that need no care succeeded now.
--   runs: job, run, job, run, ...; no job twice.
-- Return the lane of each run, in order, or false for an unchanged one; and whether any ended run
-- has permits, which are still out. If a run is unchanged, the journal is started, because its end
-- may be refused.
function JobHeld.finish_plain(worker, runs, purge_at)
  local ids = {}
  for place = 1, #runs, 2 do
    ids[#ids + 1] = runs[place]
  end
  local raws, written = JobRows.read(ids), JobRows.batch()
  local lanes, by_flow, gated = {}, {}, false
  local gone, purge, is_left = {}, {}, false
  local holder = Codec.name(worker)
  local ending = pack('>I6I6BI2I2', Time.now, purge_at, 1, 0, #worker)
  for place = 1, #ids do
    local id = ids[place]
    local raw = raws[id]
    if may_finish(raw, worker, runs[2 * place]) then
      local from = 80 + #worker + byte(raw, 74) * 256 + byte(raw, 75)
      local sized, rest = without_reason(raw, from)
      sized, rest = sized or sub(raw, 76, 79), rest or sub(raw, from)
      JobRows.put_raw(written, id, 'S' .. sub(raw, 2, 58) .. ending .. sized .. worker .. rest)
      gone[#gone + 1] = holder .. id
      purge[#purge + 1], purge[#purge + 2] = purge_at, sub(raw, 17, 22) .. id
      local flow = sub(raw, 3, 6)
      local lane = by_flow[flow] or Interned.flow(Codec.read4(flow, 1)).lane
      by_flow[flow], lanes[place] = lane, lane
      gated = gated or byte(raw, 2) % 4 >= 2
    else
      lanes[place], is_left = false, true
    end
  end
  if is_left then
    Write.begin()
  end
  Write.zrem(Keys.held, gone)
  Write.zadd(Keys.purge, purge)
  JobRows.write(written)
  return lanes, gated
end
