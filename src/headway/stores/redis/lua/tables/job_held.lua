-- What workers hold: running and awaiting jobs.
-- needs: base.keys, base.codec, base.order, tables.job_rows

local JobHeld = {}

local byte, sub = string.byte, string.sub

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
  table.sort(ordered, Order.before)
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
  local rows = JobRows.load(first)
  for place, id in ipairs(first) do
    first[place] = rows[id]
  end
  return first
end
