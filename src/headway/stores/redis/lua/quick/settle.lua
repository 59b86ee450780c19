-- The quick path of settle: successes with at most a short result, of runs that hold nothing.
-- needs: base.keys, base.quick, rules.job_limits

local QuickSettle = {}

local pack, unpack_bytes, sub, byte = struct.pack, struct.unpack, string.sub, string.byte
-- Positions in a packed row, and maximum bytes of a result in it; see tables/job_record.
local RUN, LENGTHS = 33, 72
local SHORT = 256

-- Return whether the worker's lease is live.
local function is_live(worker)
  local kept = redis.call('HGET', Keys.workers, worker)
  local values = kept and cmsgpack.unpack(kept)
  return values and not values[6] and values[4] > Quick.now
end

-- Return lists of ids, runs and results (false for none); nil if an outcome is of another type.
local function ends_of(request)
  local ids, runs, results, seen = {}, {}, {}, {}
  for place = 1, #request.plain, 2 do
    local at = #ids + 1
    ids[at], runs[at], results[at] = request.plain[place], request.plain[place + 1], false
  end
  for _, one in ipairs(request.rest) do
    local at, result = #ids + 1, one.result
    if one.type ~= 'Succeeded' or one['then'] or one.close or not result or #result > SHORT then
      return nil
    end
    if seen[one.job] then
      return nil
    end
    seen[one.job] = true
    ids[at], runs[at], results[at] = one.job, one.run, result
  end
  return ids, runs, results
end

-- Return whether the rest of a packed row has a reason, which a success would clear.
local function has_reason(raw, from, size)
  local rest = sub(raw, from, from + size - 1)
  return string.find(rest, 'reason', 1, true) and cmsgpack.unpack(rest).reason
end

-- Return the row of a job after its end; nil if that needs care, returns permits or clears a reason.
local function ended(worker, ending, raw, run, result)
  -- Running, without care and permits.
  if not raw or byte(raw, 1) ~= 114 or byte(raw, 2) % 4 ~= 0 then
    return nil
  end
  local length, last, size = unpack_bytes('>I2I2I4', raw, LENGTHS)
  if unpack_bytes('>I4', raw, RUN) ~= run or sub(raw, 80, 79 + length) ~= worker then
    return nil
  end
  local behind = 80 + length + last
  if size > 0 and has_reason(raw, behind, size) then
    return nil
  end
  local sized, rest = sub(raw, 76, 79), ''
  if result then
    if size > 0 then
      return nil
    end
    rest = cmsgpack.pack({ result = result })
    sized = pack('>I4', #rest)
  end
  return 'S' .. sub(raw, 2, 58) .. ending .. sized .. worker .. rest .. sub(raw, behind)
end

-- Return all ids and rows, alternating, and the number of ended jobs by flow; nil if one cannot be
-- ended here.
local function all_ended(worker, ids, runs, results, raws)
  local rows, flows = {}, {}
  local ending = pack('>I6I6BI2I2', Quick.now, Quick.now + JobLimits.KEEP_MS, 1, 0, #worker)
  for place = 1, #ids do
    local row = ended(worker, ending, raws[place], runs[place], results[place])
    if row == nil then
      return nil
    end
    local flow = sub(row, 3, 6)
    flows[flow] = (flows[flow] or 0) + 1
    rows[2 * place - 1], rows[2 * place] = ids[place], row
  end
  return rows, flows
end

-- Return the number of ended jobs by the lane's encoded name; nil if a name contains NUL.
local function by_lane(flows)
  local lanes = {}
  for flow, number in pairs(flows) do
    local lane = cmsgpack.unpack(redis.call('HGET', Keys.numbers, 'F' .. flow))[1]
    local name = Quick.name(lane)
    if name == nil then
      return nil
    end
    lanes[name] = (lanes[name] or 0) + number
  end
  return lanes
end

local function write(holder, ids, raws, rows)
  local held, purge, purge_at = {}, {}, Quick.now + JobLimits.KEEP_MS
  for place = 1, #ids do
    held[place] = holder .. ids[place]
    purge[2 * place - 1] = purge_at
    purge[2 * place] = sub(raws[place], 17, 22) .. ids[place]
  end
  Quick.freely()
  Quick.keep()
  redis.call('ZREM', Keys.held, unpack(held))
  redis.call('ZADD', Keys.purge, unpack(purge))
  redis.call('HSET', Keys.jobs, unpack(rows))
end

-- Settle as verbs/settle does; nil if not handled here.
function QuickSettle.run(request)
  local worker, holder = request.worker, Quick.name(request.worker)
  local ids, runs, results = ends_of(request)
  if not ids or #ids == 0 or #ids > JobLimits.MAX_BATCH or not holder or not is_live(worker) then
    return nil
  end
  local raws = redis.call('HMGET', Keys.jobs, unpack(ids))
  local rows, flows = all_ended(worker, ids, runs, results, raws)
  local lanes = rows and by_lane(flows)
  if not lanes then
    return nil
  end
  write(holder, ids, raws, rows)
  for name, number in pairs(lanes) do
    Quick.count(name, 'running', 'succeeded', 'succeeded', number)
  end
  return { plain = string.rep('d', #request.plain / 2), rest = string.rep('d', #request.rest) }
end
