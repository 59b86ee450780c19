-- Jobs end in the plainest way, the one that must be fast.
-- needs: base.keys, base.codec, base.write, base.time, tables.interned, tables.job_rows

local JobEnds = {}

local pack = struct.pack
local byte, sub = string.byte, string.sub

-- Whether a packed row is a run of this worker whose end needs no care.
local function may_finish(raw, worker, run)
  if not raw or byte(raw, 1) ~= 114 or byte(raw, 2) % 2 == 1 then
    return false
  end
  local length = byte(raw, 72) * 256 + byte(raw, 73)
  return Codec.read4(raw, 33) == run and sub(raw, 80, 79 + length) == worker
end

-- Running jobs of this worker and run, with no need of care, become succeeded now.
--   runs: job, run, job, run, ...; no job twice.
-- Returns for each run, in the order asked, its lane, or false for one that was left untouched;
-- and whether any that ended had taken anything. Their permits are still out. Where one is left, the
-- journal is begun, because its end may be refused.
function JobEnds.finish_plain(worker, runs, purge_at)
  local ids = {}
  for place = 1, #runs, 2 do
    ids[#ids + 1] = runs[place]
  end
  local raws, written = JobRows.read(ids), JobRows.batch()
  local lanes, by_flow, gated = {}, {}, false
  local gone, purge, is_left = {}, {}, false
  local holder = Codec.name(worker)
  local ending = pack('>I6I6BI2I2', Time.now, purge_at, 1, 0, #worker)
  for place = 1, #ids do
    local id = ids[place]
    local raw = raws[id]
    if may_finish(raw, worker, runs[2 * place]) then
      local last = byte(raw, 74) * 256 + byte(raw, 75)
      local behind = 80 + #worker + last
      JobRows.put_raw(
        written,
        id,
        'S' .. sub(raw, 2, 58) .. ending .. sub(raw, 76, 79) .. worker .. sub(raw, behind)
      )
      gone[#gone + 1] = holder .. id
      purge[#purge + 1], purge[#purge + 2] = purge_at, sub(raw, 17, 22) .. id
      local flow = sub(raw, 3, 6)
      local lane = by_flow[flow] or Interned.flow(Codec.read4(flow, 1)).lane
      by_flow[flow], lanes[place] = lane, lane
      gated = gated or byte(raw, 2) % 4 >= 2
    else
      lanes[place], is_left = false, true
    end
  end
  if is_left then
    Write.begin()
  end
  Write.zrem(Keys.held, gone)
  Write.zadd(Keys.purge, purge)
  JobRows.write(written)
  return lanes, gated
end
