-- Listings of jobs: pages in order of arrival, a place in a flow, the oldest waiting job.
-- needs: base.keys, base.codec, tables.filing, tables.job_rows, tables.job_starts
-- needs: tables.job_reading

local JobListing = {}

local sub = string.sub

-- Count the waiting jobs of a flow before this order, up to `limit`.
function JobListing.place(flow, order, limit)
  local low = '[' .. Codec.n4(flow)
  local high = '(' .. Filing.order(flow, order.priority, order.due_at, order.seq)
  return math.min(limit, redis.call('ZLEXCOUNT', Keys.waiting, low, high))
end

-- Count the waiting jobs of a flow, up to `limit`.
function JobListing.waiting_count(flow, limit)
  local low, high = Codec.prefix(Codec.n4(flow))
  return math.min(limit, redis.call('ZLEXCOUNT', Keys.waiting, low, high))
end

-- Return the due time of one of the oldest waiting jobs of a lane, for display; nil if there is
-- none.
function JobListing.oldest_due(lane)
  local oldest = nil
  for _, flow in ipairs(JobStarts.flows_waiting(lane, -1, 16)) do
    local low, high = Codec.prefix(Codec.n4(flow))
    local member = redis.call('ZRANGEBYLEX', Keys.waiting, low, high, 'LIMIT', 0, 1)[1]
    local due_at = Codec.read6(member, 9)
    oldest = oldest and math.min(oldest, due_at) or due_at
  end
  return oldest
end

-- Return ids from members that end in seq and id, after a seq, by arrival or in reverse.
local function walk(key, prefix, after, limit, newest)
  local low, high = Codec.prefix(prefix)
  local ids
  if newest then
    if after then
      high = '(' .. prefix .. Codec.n6(after)
    end
    ids = redis.call('ZREVRANGEBYLEX', key, high, low, 'LIMIT', 0, limit)
  else
    if after then
      low = '[' .. prefix .. Codec.n6(after + 1)
    end
    ids = redis.call('ZRANGEBYLEX', key, low, high, 'LIMIT', 0, limit)
  end
  return Codec.cut(ids, #prefix + 7)
end

-- Return ids of a tenant's jobs about a subject, by arrival.
--   after: seq after which to start; nil for the first, or the last if `newest`.
function JobListing.about(tenant, subject, after, limit, newest)
  local prefix = Codec.name(tenant) .. Codec.name(subject)
  return walk(Keys.subjects, prefix, after, limit, newest)
end

-- Return ids of dead or cancelled jobs, by arrival; `after` as in `about`.
function JobListing.ended_badly(state, after, limit, newest)
  return walk(Keys.ended_badly, Codec.name(state), after, limit, newest)
end

-- Return ids of awaiting jobs, by arrival; `after` as in `about`.
function JobListing.awaiting(after, limit, newest)
  return walk(Keys.awaiting, '', after, limit, newest)
end

-- Return what filters need of existing jobs: {id, seq, flow, state}, in the order of the ids.
function JobListing.glance(ids)
  local raws, found = JobRows.read(ids), {}
  for _, id in ipairs(ids) do
    local raw = raws[id]
    if raw then
      found[#found + 1] = {
        id = id,
        seq = Codec.read6(raw, 17),
        flow = Codec.read4(raw, 3),
        state = JobReading.STATES[sub(raw, 1, 1)],
      }
    end
  end
  return found
end
