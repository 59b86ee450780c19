-- What time brings to jobs: they become due, expire, miss a deadline, or may be forgotten.
-- needs: base.keys, base.codec, base.time, tables.interned, tables.filing, tables.job_rows
-- needs: tables.job_reading

local JobTiming = {}

local sub = string.sub

-- Scheduled jobs of a lane whose time has come, as {seq, id, entry, fired_at}, by due time and
-- arrival.
function JobTiming.due(lane, limit)
  local prefix = Codec.name(lane)
  local high = '(' .. prefix .. Codec.n6(Time.now + 1)
  local ids = redis.call('ZRANGEBYLEX', Keys.scheduled, '[' .. prefix, high, 'LIMIT', 0, limit)
  Codec.cut(ids, #prefix + 13)
  local raws, found = JobRows.read(ids), {}
  for place, id in ipairs(ids) do
    found[place] = JobReading.due(raws[id], id)
  end
  return found
end

-- Scheduled jobs become waiting.
-- Returns their flows, as {flow = true}.
function JobTiming.promote(ids)
  local raws, flows = JobRows.read(ids), {}
  local written, filed = JobRows.batch(), Filing.batch()
  local lanes = {}
  for place = 1, #ids do
    local id = ids[place]
    local raw = raws[id]
    JobRows.put_raw(written, id, 'w' .. sub(raw, 2))
    local flow = Codec.read4(raw, 3)
    if not flows[flow] then
      flows[flow] = true
      lanes[flow] = Codec.name(Interned.flow(flow).lane)
      Filing.fill(filed, flow)
    end
    Filing.drop(filed, Keys.scheduled, lanes[flow] .. sub(raw, 11, 22) .. id)
    Filing.add(filed, Keys.waiting, 0, sub(raw, 3, 22) .. id)
  end
  JobRows.write(written)
  Filing.write(filed)
  return flows
end

-- When the next scheduled job of a lane is due; nil for none.
function JobTiming.next_due(lane)
  local prefix = Codec.name(lane)
  local low, high = Codec.prefix(prefix)
  local member = redis.call('ZRANGEBYLEX', Keys.scheduled, low, high, 'LIMIT', 0, 1)[1]
  return member and Codec.read6(member, #prefix + 1) or nil
end

-- Lanes that have a scheduled job whose time has come, by name.
function JobTiming.lanes_due(limit)
  local lanes, from = {}, '-'
  while #lanes < limit do
    local member = redis.call('ZRANGEBYLEX', Keys.scheduled, from, '+', 'LIMIT', 0, 1)[1]
    if not member then
      break
    end
    local lane, at = Codec.read_name(member, 1)
    if Codec.read6(member, at) <= Time.now then
      lanes[#lanes + 1] = lane
    end
    from = '[' .. sub(Codec.behind(sub(member, 1, at - 1)), 2)
  end
  return lanes
end

-- The ids that stand in a set by moment up to now, earliest first.
local function past(key, limit)
  local ids = redis.call('ZRANGEBYSCORE', key, '-inf', Time.now, 'LIMIT', 0, limit)
  return Codec.cut(ids, 7)
end

-- The first moment of such a set; nil for none.
local function first(key)
  return Codec.number(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
end

-- Queued jobs that never ran past their `expires_at`, earliest first.
function JobTiming.expired(limit)
  return past(Keys.expiry, limit)
end

-- When the next queued job that never ran expires; nil for none.
function JobTiming.next_expiry()
  return first(Keys.expiry)
end

-- Awaiting jobs whose deadline has come, earliest first.
function JobTiming.deadlines(limit)
  return past(Keys.deadlines, limit)
end

-- When the next deadline comes; nil for none.
function JobTiming.next_deadline()
  return first(Keys.deadlines)
end

-- Final jobs past their retention, oldest first.
function JobTiming.purgeable(limit)
  return past(Keys.purge, limit)
end

-- Jobs of a timetable entry that are not final, by the moment fired.
function JobTiming.of_entry(entry)
  local prefix = Codec.name(entry)
  local low, high = Codec.prefix(prefix)
  local ids = redis.call('ZRANGEBYLEX', Keys.fired, low, high)
  Codec.cut(ids, #prefix + 13)
  return JobRows.in_order(ids)
end
