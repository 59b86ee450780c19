-- Jobs by time: due, expired, past their deadline, or past their retention.
-- needs: base.keys, base.codec, base.time, tables.interned, tables.filing, tables.job_rows
-- needs: tables.job_reading

local JobTiming = {}

local sub = string.sub

-- Return due scheduled jobs of a lane, as {seq, id, entry, due_at}, by due time and arrival;
-- the entry only of a fire that has not run.
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

-- Make due scheduled jobs waiting, except fires that never ran. Return the numbers of these jobs by
-- lane, and the due fires.
function JobTiming.promote_due(lanes, limit)
  local counts, fires = {}, {}
  for _, lane in ipairs(lanes) do
    local plain = {}
    for _, row in ipairs(JobTiming.due(lane, limit)) do
      row.lane = lane
      local part = row.entry and fires or plain
      part[#part + 1] = row
    end
    if #plain > 0 then
      counts[lane] = #plain
      JobTiming.promote(plain)
    end
  end
  return { counts, fires }
end

-- Make scheduled jobs waiting. Return their flows, as {flow = true}.
--   rows: with the id of each.
function JobTiming.promote(rows)
  local ids = Codec.fields(rows, 'id')
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

-- Return when the next scheduled job of a lane is due; nil if there is none.
function JobTiming.next_due(lane)
  local prefix = Codec.name(lane)
  local low, high = Codec.prefix(prefix)
  local member = redis.call('ZRANGEBYLEX', Keys.scheduled, low, high, 'LIMIT', 0, 1)[1]
  return member and Codec.read6(member, #prefix + 1) or nil
end

-- Return lanes with a due scheduled job, by name.
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

-- Return the ids in a set by time up to now, earliest first.
local function past(key, limit)
  local ids = redis.call('ZRANGEBYSCORE', key, '-inf', Time.now, 'LIMIT', 0, limit)
  return Codec.cut(ids, 7)
end

-- Return the first time in such a set; nil if it is empty.
local function first(key)
  return Codec.number(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
end

-- Return queued jobs that never ran and are past their `expires_at`, earliest first.
function JobTiming.expired(limit)
  return past(Keys.expiry, limit)
end

-- Return when the next queued job that never ran expires; nil if there is none.
function JobTiming.next_expiry()
  return first(Keys.expiry)
end

-- Return awaiting jobs past their deadline, earliest first.
function JobTiming.deadlines(limit)
  return past(Keys.deadlines, limit)
end

-- Return the next deadline; nil if there is none.
function JobTiming.next_deadline()
  return first(Keys.deadlines)
end

-- Return final jobs past their retention, oldest first.
function JobTiming.purgeable(limit)
  return past(Keys.purge, limit)
end

-- Return jobs of a timetable entry that are not final, by the time fired.
function JobTiming.of_entry(entry)
  local prefix = Codec.name(entry)
  local low, high = Codec.prefix(prefix)
  local ids = redis.call('ZRANGEBYLEX', Keys.fired, low, high)
  Codec.cut(ids, #prefix + 13)
  return JobRows.in_order(ids)
end
