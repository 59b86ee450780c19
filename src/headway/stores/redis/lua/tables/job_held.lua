-- What workers hold, running and awaiting jobs; and the plainest end of a run.
-- needs: base.keys, base.codec, base.write, base.time, tables.job_rows, tables.interned

local JobHeld = {}

local byte, sub = string.byte, string.sub

-- The ids of the jobs whose run a worker holds.
local function ids_held(worker)
  local prefix = Codec.name(worker)
  local low, high = Codec.prefix(prefix)
  local ids = redis.call('ZRANGEBYLEX', Keys.held, low, high)
  return Codec.cut(ids, #prefix + 1)
end

-- The rows of jobs by ids, in order of start.
local function rows_in_order(ids)
  local ordered = JobRows.in_order(ids)
  table.sort(ordered, Codec.before)
  return ordered
end

-- Running and awaiting jobs whose run this worker holds, as {id, run, request, state,
-- cancel_requested}, in order of start; the first `limit` of them, or all if it is nil.
function JobHeld.held_by(worker, limit)
  local rows = rows_in_order(ids_held(worker))
  for place = #rows, (limit or #rows) + 1, -1 do
    rows[place] = nil
  end
  return rows
end

-- How many those are.
function JobHeld.held_count(worker)
  local low, high = Codec.prefix(Codec.name(worker))
  return redis.call('ZLEXCOUNT', Keys.held, low, high)
end

-- Running jobs that this claim of the worker took, in order of start.
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

-- Running and awaiting jobs by id, those above `after`.
--
-- They stand by worker; there are far fewer workers than jobs, and an audit is rare.
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

-- Jobs end in the plainest way, the one that must be fast.

local pack = struct.pack

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
-- and whether any that ended had taken anything. Their permits are still out. Where one is left, the
-- journal is begun, because its end may be refused.
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
