-- Changes of the sorted sets in which jobs are filed, gathered and written together.
-- needs: base.keys, base.codec, base.write, tables.interned

local Filing = {}

local n4, name = Codec.n4, Codec.name

-- Return the bytes by which a waiting job is filed, without its id.
function Filing.order(flow, priority, due_at, seq)
  return struct.pack('>I4I4I6I6', flow, priority, due_at, seq)
end

-- Create a batch of changes, which `write` writes together.
function Filing.batch()
  return { added = {}, gone = {}, filled = {}, left = {} }
end

-- Add a member.
function Filing.add(batch, key, score, member)
  local list = batch.added[key]
  if not list then
    list = {}
    batch.added[key] = list
  end
  local count = #list
  list[count + 1], list[count + 2] = score, member
end

-- Remove a member.
function Filing.drop(batch, key, member)
  local list = batch.gone[key]
  if not list then
    list = {}
    batch.gone[key] = list
  end
  list[#list + 1] = member
end

-- Record that a flow has one more waiting job.
function Filing.fill(batch, flow)
  batch.filled[flow] = true
end

-- Record that a flow has one waiting job fewer.
function Filing.leave(batch, flow)
  batch.left[flow] = true
end

local function flow_member(flow)
  return name(Interned.flow(flow).lane) .. n4(flow)
end

-- File the flows that now have waiting jobs, and remove those without.
local function write_flows(batch)
  local added, gone = {}, {}
  for flow in pairs(batch.filled) do
    added[#added + 1] = 0
    added[#added + 1] = flow_member(flow)
  end
  for flow in pairs(batch.left) do
    if not batch.filled[flow] then
      local low, high = Codec.prefix(n4(flow))
      if not redis.call('ZRANGEBYLEX', Keys.waiting, low, high, 'LIMIT', 0, 1)[1] then
        gone[#gone + 1] = flow_member(flow)
      end
    end
  end
  Write.zrem(Keys.flowing, gone)
  Write.zadd(Keys.flowing, added)
end

-- Write the changes, removals first to make room.
function Filing.write(batch)
  for key, members in pairs(batch.gone) do
    Write.zrem(key, members)
  end
  for key, values in pairs(batch.added) do
    Write.zadd(key, values)
  end
  write_flows(batch)
end
