-- The quick path of enqueue: one job with nothing but its arguments, due now, whose flow and lane
-- exist.
-- needs: base.keys, base.quick, tables.packing

local QuickEnqueue = {}

local pack = struct.pack
-- Jobs per chunk of arrivals; see tables/job_arrivals.
local CHUNK = 64

-- Return whether the lane exists, and has no maximum backlog.
local function is_unlimited(lane)
  local kept = redis.call('HGET', Keys.lanes, lane)
  local row = kept and cmsgpack.unpack(kept)
  local current = row and (row.override or row.spec)
  return row and not (current and current.max_backlog)
end

-- Return the numbers of the flow and the policy; false for a missing one.
local function numbers_of(shape, policy)
  local flow = cmsgpack.pack({ shape[2], shape[3], shape[1], {} })
  local text = cmsgpack.pack(Packing.encode_policy(policy))
  return redis.call('HMGET', Keys.numbers, 'f' .. flow, 'p' .. text)
end

-- File a job by its arrival.
local function arrive(id, seq)
  local number = math.floor(seq / CHUNK)
  local field = pack('>I6', number)
  local chunk = redis.call('HGET', Keys.arrivals, field) or ''
  redis.call('HSET', Keys.arrivals, field, chunk .. string.char(seq % CHUNK) .. id)
  if chunk == '' then
    redis.call('ZADD', Keys.chunks, number, field)
  end
end

local function write(job, numbers, name)
  local id, now = job[1], Quick.now
  local seq = redis.call('HINCRBY', Keys.facts, 'seq', 1)
  local place = { flow = tonumber(numbers[1]), policy = tonumber(numbers[2]) }
  local row = Packing.plain_row('waiting', place, job[4], job[5] or now, seq, now, job[3])
  redis.call('HSET', Keys.jobs, id, row)
  redis.call('ZADD', Keys.waiting, 0, string.sub(row, 3, 22) .. id)
  redis.call('ZADD', Keys.flowing, 0, name .. string.sub(row, 3, 6))
  arrive(id, seq)
  Quick.count(name, nil, 'waiting', 'enqueued', 1)
end

-- Enqueue as verbs/enqueue_plain does; nil if not handled here.
function QuickEnqueue.run(request)
  local job, shape = request.jobs[1], request.shapes[1]
  local name = Quick.name(shape[2])
  if #request.jobs > 1 or not name or (job[5] or 0) > Quick.now then
    return nil
  end
  if redis.call('HEXISTS', Keys.jobs, job[1]) == 1 or not is_unlimited(shape[2]) then
    return nil
  end
  local numbers = numbers_of(shape, request.policies[shape[5]])
  if not (numbers[1] and numbers[2]) or not Quick.keep() then
    return nil
  end
  write(job, numbers, name)
  return true, shape[2]
end
