-- Listings for people: a bounded walk, a place in a flow, the oldest that waits.
-- needs: base.keys, base.codec, tables.filing, tables.job_rows, tables.job_starts
-- needs: tables.job_reading

local JobListing = {}

local sub = string.sub

-- How many waiting jobs of the flow stand before this order; counted up to `limit`.
function JobListing.place(flow, order, limit)
  local low = '[' .. Codec.n4(flow)
  local high = '(' .. Filing.order(flow, order.priority, order.due_at, order.seq)
  return math.min(limit, redis.call('ZLEXCOUNT', Keys.waiting, low, high))
end

-- How many jobs of a flow wait; counted up to `limit`.
function JobListing.waiting_count(flow, limit)
  local low, high = Codec.prefix(Codec.n4(flow))
  return math.min(limit, redis.call('ZLEXCOUNT', Keys.waiting, low, high))
end

-- The due time of a waiting job that is among the oldest of its lane; a hint for people.
-- nil for none.
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

-- Ids from members that end in seq and id, behind a seq, oldest arrival first or the reverse.
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

-- Ids of a tenant's jobs about a subject, by arrival.
--   after: the seq behind which to begin; nil for the first, or if `newest` for the last.
function JobListing.about(tenant, subject, after, limit, newest)
  local prefix = Codec.name(tenant) .. Codec.name(subject)
  return walk(Keys.subjects, prefix, after, limit, newest)
end

-- Ids of the jobs that are dead, or cancelled, by arrival; `after` as in `about`.
function JobListing.ended_badly(state, after, limit, newest)
  return walk(Keys.ended_badly, Codec.name(state), after, limit, newest)
end

-- Ids of the jobs that await, by arrival; `after` as in `about`.
function JobListing.awaiting(after, limit, newest)
  return walk(Keys.awaiting, '', after, limit, newest)
end

-- What a filter asks of jobs that exist: {id, seq, flow, state}, in the order of the ids.
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
