-- Settle, the quick way: successes with nothing to say but a short result, of runs that hold nothing.
-- needs: base.keys, base.quick

local QuickSettle = {}

local pack, unpack_bytes, sub, byte = struct.pack, struct.unpack, string.sub, string.byte
-- How long a final job of no policy of its own is kept; see verbs/settle.
local KEEP_MS = 7 * 86400000
-- Places in a packed row, and bytes of a result that may stand in it; see tables/job_record.
local RUN, LENGTHS = 33, 72
local SHORT = 256

-- Whether the worker's lease lives.
local function is_live(worker)
  local kept = redis.call('HGET', Keys.workers, worker)
  local values = kept and cmsgpack.unpack(kept)
  return values and not values[6] and values[4] > Quick.now
end

-- What ends: ids, runs and results (false for none), each in a list; nil if an outcome is another.
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

-- The row of a job as it is when it has ended; nil if that needs care or gives back something.
local function ended(worker, ending, raw, run, result)
  -- It runs, and has no care, and nothing taken.
  if not raw or byte(raw, 1) ~= 114 or byte(raw, 2) % 4 ~= 0 then
    return nil
  end
  local length, last, size = unpack_bytes('>I2I2I4', raw, LENGTHS)
  if unpack_bytes('>I4', raw, RUN) ~= run or sub(raw, 80, 79 + length) ~= worker then
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
  return 'S' .. sub(raw, 2, 58) .. ending .. sized .. worker .. rest .. sub(raw, 80 + length + last)
end

-- The rows of all, id and row by turns, and how many jobs of each flow ended; nil if one is left.
local function all_ended(worker, ids, runs, results, raws)
  local rows, flows = {}, {}
  local ending = pack('>I6I6BI2I2', Quick.now, Quick.now + KEEP_MS, 1, 0, #worker)
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

-- How many jobs of each lane ended, by the lane's name; nil for a name that is none for here.
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
  local held, purge = {}, {}
  for place = 1, #ids do
    held[place] = holder .. ids[place]
    purge[2 * place - 1] = Quick.now + KEEP_MS
    purge[2 * place] = sub(raws[place], 17, 22) .. ids[place]
  end
  Quick.freely()
  Quick.keep()
  redis.call('ZREM', Keys.held, unpack(held))
  redis.call('ZADD', Keys.purge, unpack(purge))
  redis.call('HSET', Keys.jobs, unpack(rows))
end

-- As verbs/settle; nil for what is not done here.
function QuickSettle.run(request)
  local worker, holder = request.worker, Quick.name(request.worker)
  local ids, runs, results = ends_of(request)
  if not ids or #ids == 0 or #ids > 1000 or not holder or not is_live(worker) then
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
