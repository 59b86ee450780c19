-- Settle, the quick way: successes with nothing to say, of runs that hold nothing.
-- needs: base.keys, base.quick

local QuickSettle = {}

local pack, unpack_bytes, sub, byte = struct.pack, struct.unpack, string.sub, string.byte
-- How long a final job of no policy of its own is kept; see verbs/settle.
local KEEP_MS = 7 * 86400000
-- A place and its lengths in a packed row; see tables/job_record.
local RUN, LENGTHS = 33, 72

-- Whether the worker's lease lives.
local function is_live(worker)
  local kept = redis.call('HGET', Keys.workers, worker)
  local values = kept and cmsgpack.unpack(kept)
  return values and not values[6] and values[4] > Quick.now
end

-- The rows as they are when they have ended; nil if the end of one needs care or gives back
-- something. Counts the jobs of each flow.
local function ended(worker, runs, raws, flows)
  local rows = {}
  local ending = pack('>I6I6BI2I2', Quick.now, Quick.now + KEEP_MS, 1, 0, #worker)
  for place = 1, #raws do
    local raw = raws[place]
    -- It runs, and has no care, and nothing taken.
    if not raw or byte(raw, 1) ~= 114 or byte(raw, 2) % 4 ~= 0 then
      return nil
    end
    local length, last = unpack_bytes('>I2I2', raw, LENGTHS)
    local run = unpack_bytes('>I4', raw, RUN)
    if run ~= runs[2 * place] or sub(raw, 80, 79 + length) ~= worker then
      return nil
    end
    local flow = sub(raw, 3, 6)
    flows[flow] = (flows[flow] or 0) + 1
    rows[2 * place - 1] = runs[2 * place - 1]
    rows[2 * place] = 'S'
      .. sub(raw, 2, 58)
      .. ending
      .. sub(raw, 76, 79)
      .. worker
      .. sub(raw, 80 + length + last)
  end
  return rows
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
  local worker, runs, ids, flows = request.worker, request.plain, {}, {}
  local holder = Quick.name(worker)
  if #request.rest > 0 or #runs == 0 or #runs > 2000 or not holder or not is_live(worker) then
    return nil
  end
  for place = 1, #runs, 2 do
    ids[#ids + 1] = runs[place]
  end
  local raws = redis.call('HMGET', Keys.jobs, unpack(ids))
  local rows = ended(worker, runs, raws, flows)
  local lanes = rows and by_lane(flows)
  if not lanes then
    return nil
  end
  write(holder, ids, raws, rows)
  for name, number in pairs(lanes) do
    Quick.count(name, 'running', 'succeeded', 'succeeded', number)
  end
  return { plain = string.rep('d', #ids), rest = '' }
end
