-- The quick path of claim: one lane with a single flow without gates, and jobs with nothing but
-- their arguments; or nothing at all.
-- needs: base.keys, base.quick, tables.packing

local QuickClaim = {}

local pack, unpack_bytes, sub, byte = struct.pack, struct.unpack, string.sub, string.byte

-- Return the worker's values, if its lease is live and the request is new; see tables/workers.
local function worker_of(request)
  local kept = redis.call('HGET', Keys.workers, request.worker)
  local values = kept and cmsgpack.unpack(kept)
  if values and not values[6] and values[4] > Quick.now and request.request > values[5] then
    return values
  end
  return nil
end

-- Return the first time in a sorted set scored by time; nil if it is empty.
local function first_of(key)
  return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
end

-- Return when a claim next has work other than waiting jobs; math.huge for never.
--   name: of the lane.
local function next_at(name)
  local low, high = '[' .. name, '(' .. sub(name, 1, -2) .. '\1'
  local member = redis.call('ZRANGEBYLEX', Keys.scheduled, low, high, 'LIMIT', 0, 1)[1]
  local due_at = member and unpack_bytes('>I6', member, #name + 1) or math.huge
  return math.min(due_at, first_of(Keys.timers) or math.huge)
end

-- Return whether the lane exists, and is neither fair nor limited.
local function is_bare(lane)
  local kept = redis.call('HGET', Keys.lanes, lane)
  local row = kept and cmsgpack.unpack(kept)
  local current = row and (row.override or row.spec)
  return row and not (current and (current.fair == 'tenant' or current.concurrency))
end

-- Return the flow of a packed number, and since when it is open; nil if it has gates, or was shut
-- when last examined.
local function flow_of(number)
  local key = cmsgpack.unpack(redis.call('HGET', Keys.numbers, 'F' .. number))
  local period = redis.call('HGET', Keys.shut, number)
  if #key[4] > 0 or period and #period == 6 then
    return nil
  end
  local gates = redis.call(
    'HMGET', Keys.gates, 'all', 'lane:' .. key[1], 'tenant:' .. key[2], 'kind:' .. key[3]
  )
  if gates[1] or gates[2] or gates[3] or gates[4] then
    return nil
  end
  return key, period and unpack_bytes('>I6', period, 7) or 0
end

-- Return the flow's waiting jobs: members, ids and rows; nil if a job has more than its arguments,
-- or waited while the flow was shut, which must be counted.
local function heads_of(number, n, open_at)
  local high = pack('>I4', unpack_bytes('>I4', number) + 1)
  local found = redis.call('ZRANGEBYLEX', Keys.waiting, '[' .. number, '(' .. high, 'LIMIT', 0, n)
  local ids = {}
  for place = 1, #found do
    if unpack_bytes('>I6', found[place], 9) < open_at then
      return nil
    end
    ids[place] = sub(found[place], 21)
  end
  if #ids == 0 then
    return nil
  end
  local raws = redis.call('HMGET', Keys.jobs, unpack(ids))
  for place = 1, #raws do
    -- Flags: a ticket, or separate arguments.
    if byte(raws[place], 2) % 128 >= 32 or unpack_bytes('>I4', raws[place], 76) > 0 then
      return nil
    end
  end
  return found, ids, raws
end

-- Return the row of a starting job, and add the job and its policy to `reply`.
local function started(reply, request, id, raw)
  local worker = request.worker
  local priority, due, _, policy, _, run, attempt, blocked =
    unpack_bytes('>I4I6I6I4I6I4I4I6', raw, 7)
  local before, last = unpack_bytes('>I2I2', raw, 72)
  local from = 80 + before
  local args = sub(raw, from + last, -2)
  local flow = unpack_bytes('>I4', raw, 3)
  reply.jobs[#reply.jobs + 1] =
    { id, run + 1, attempt + 1, '', false, args, priority, due, flow, policy, false, false, '' }
  if not reply.known[policy] then
    reply.known[policy] = true
    local kept = redis.call('HGET', Keys.numbers, 'P' .. sub(raw, 23, 26))
    reply.policies[#reply.policies + 1] = { policy, Packing.decode_policy(cmsgpack.unpack(kept)) }
  end
  return 'r'
    .. sub(raw, 2, 32)
    .. pack('>I4I4I6I6I6', run + 1, attempt + 1, blocked, request.request, Quick.now)
    .. sub(raw, 59, 71)
    .. pack('>I2', #worker)
    .. sub(raw, 74, 79)
    .. worker
    .. sub(raw, from)
end

local function start(reply, request, name, number, holder, heads, ids, raws)
  local rows, held = {}, {}
  for place = 1, #ids do
    rows[2 * place - 1] = ids[place]
    rows[2 * place] = started(reply, request, ids[place], raws[place])
    held[2 * place - 1], held[2 * place] = 0, holder .. ids[place]
  end
  redis.call('ZREM', Keys.waiting, unpack(heads))
  redis.call('ZADD', Keys.held, unpack(held))
  redis.call('HSET', Keys.jobs, unpack(rows))
  local high = pack('>I4', unpack_bytes('>I4', number) + 1)
  local found = #ids < request.n
    or not redis.call('ZRANGEBYLEX', Keys.waiting, '[' .. number, '(' .. high, 'LIMIT', 0, 1)[1]
  if found then
    redis.call('ZREM', Keys.flowing, name .. number)
  end
  Quick.count(name, 'waiting', 'running', 'started', #ids)
end

local function keep_worker(worker, request, number)
  local now = Quick.now
  if number == 0 and worker[4] >= now + math.floor(request.lease_ms / 2) then
    return
  end
  worker[3] = now
  worker[4] = math.max(worker[4], now + request.lease_ms)
  worker[5] = number > 0 and request.request or worker[5]
  worker[2] = #worker[2] > 0 and worker[2] or { request.lanes[1][1] }
  redis.call('HSET', Keys.workers, request.worker, cmsgpack.pack(worker))
  redis.call('ZADD', Keys.leases, worker[4], request.worker)
end

-- Claim as verbs/claim does; nil if not handled here.
function QuickClaim.run(request)
  local lane, now = request.lanes[1][1], Quick.now
  local name, holder = Quick.name(lane), Quick.name(request.worker)
  if #request.lanes > 1 or #request.after > 0 or request.n < 1 or not name or not holder then
    return nil
  end
  local worker, at = worker_of(request), next_at(name)
  if not worker or at <= now or (first_of(Keys.expiry) or math.huge) <= now then
    return nil
  end
  local low, high = '[' .. name, '(' .. sub(name, 1, -2) .. '\1'
  local flows = redis.call('ZRANGEBYLEX', Keys.flowing, low, high, 'LIMIT', 0, 2)
  local reply = { jobs = {}, flows = {}, policies = {}, known = {} }
  if #flows > 1 or not is_bare(lane) then
    return nil
  end
  local number, flow, heads, ids, raws
  if #flows == 1 then
    number = sub(flows[1], -4)
    local open_at
    flow, open_at = flow_of(number)
    if flow == nil then
      return nil
    end
    heads, ids, raws = heads_of(number, request.n, open_at)
    if heads == nil then
      return nil
    end
  end
  Quick.freely()
  Quick.keep()
  if heads then
    reply.flows[1] = { unpack_bytes('>I4', number), flow[1], flow[2], flow[3] }
    start(reply, request, name, number, holder, heads, ids, raws)
  end
  keep_worker(worker, request, #reply.jobs)
  return {
    jobs = reply.jobs,
    flows = reply.flows,
    policies = reply.policies,
    lease_until = worker[4],
    next_at = at < math.huge and at or nil,
    again = #reply.jobs >= request.n,
    after = {},
  }
end
