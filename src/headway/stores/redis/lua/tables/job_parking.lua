-- Jobs parked at a closed keyed gate, and jobs fed from one.
-- needs: base.keys, base.codec, base.time, tables.filing, tables.job_rows, tables.job_starts
-- needs: tables.job_filing

local JobParking = {}

local n4, name = Codec.n4, Codec.name
local sub = string.sub
-- The sets of parked jobs, including unfit ones.
local PARKED = { Keys.parked, Keys.unfit, Keys.unfit_by_amount }

-- Read an order from the position of its priority.
local function read_order(member, at)
  local priority, due, seq = struct.unpack('>I4I6I6', member, at)
  return { priority = priority, due_at = due, seq = seq }
end

-- Return the first members of a set within bounds.
local function members(key, low, high, limit)
  return redis.call('ZRANGEBYLEX', key, low, high, 'LIMIT', 0, limit)
end

-- Return flows with jobs parked at a gate (without unfit ones), after `after` (-1 for all).
function JobParking.parked_flows(gate, after, limit)
  local prefix, flows = name(gate), {}
  local high = Codec.behind(prefix)
  while #flows < limit do
    local member = members(Keys.parked, '[' .. prefix .. n4(after + 1), high, 1)[1]
    if not member then
      break
    end
    after = Codec.read4(member, #prefix + 1)
    flows[#flows + 1] = after
  end
  return flows
end

-- Return the ids of a flow's first jobs parked at a gate (without unfit ones), in order.
function JobParking.parked_ids(gate, flow, limit)
  local prefix = name(gate) .. n4(flow)
  local low, high = Codec.prefix(prefix)
  local ids = members(Keys.parked, low, high, limit)
  return Codec.cut(ids, #prefix + 17)
end

-- Return the first jobs of a flow parked at a gate, as heads.
function JobParking.parked_heads(gate, flow, limit)
  return JobStarts.heads_of(JobParking.parked_ids(gate, flow, limit))
end

-- Return the order of the first job of a flow parked at a gate; nil if there is none.
function JobParking.parked_order(gate, flow)
  local prefix = name(gate) .. n4(flow)
  local low, high = Codec.prefix(prefix)
  local member = members(Keys.parked, low, high, 1)[1]
  return member and read_order(member, #prefix + 1) or nil
end

-- Return the same by flow, for those that have any.
function JobParking.parked_orders(gate, flows)
  local orders = {}
  for _, flow in ipairs(flows) do
    orders[flow] = JobParking.parked_order(gate, flow)
  end
  return orders
end

-- Count the jobs parked at a gate, including unfit ones, up to `limit`.
function JobParking.parked_count(gate, limit)
  local low, high = Codec.prefix(name(gate))
  local count = 0
  for _, key in ipairs(PARKED) do
    count = count + redis.call('ZLEXCOUNT', key, low, high)
  end
  return math.min(limit, count)
end

-- Return the ids of unfit jobs parked at a gate that need at most `most` there, least first.
function JobParking.unfit_at(gate, most, limit)
  local prefix = name(gate)
  local low, high = Codec.prefix(prefix)
  local ids = Codec.cut(members(Keys.unfit, low, high, limit), #prefix + 7)
  local found = members(Keys.unfit_by_amount, low, '(' .. prefix .. n4(most + 1), limit - #ids)
  for _, id in ipairs(Codec.cut(found, #prefix + 11)) do
    ids[#ids + 1] = id
  end
  return ids
end

-- Return the first gate of a set after a bound, and the bound after that gate; nil if there is
-- none.
local function next_gate(key, low)
  local member = members(key, low, '+', 1)[1]
  if not member then
    return nil
  end
  local gate, at = Codec.read_name(member, 1)
  return gate, '[' .. sub(Codec.behind(sub(member, 1, at - 1)), 2)
end

-- Return gates with parked jobs, including unfit ones, by name, after `after`.
function JobParking.parked_gates(after, limit)
  local low = '[' .. sub(Codec.behind(name(after)), 2)
  local gates, known = {}, {}
  for _, key in ipairs(PARKED) do
    local gate, above = next_gate(key, low)
    for _ = 1, limit do
      if not gate then
        break
      end
      if not known[gate] then
        known[gate] = true
        gates[#gates + 1] = gate
      end
      gate, above = next_gate(key, above)
    end
  end
  table.sort(gates, Codec.less)
  for place = #gates, limit + 1, -1 do
    gates[place] = nil
  end
  return gates
end

-- Return the tickets of a flow's waiting jobs for a gate, each its order and amount, in order.
function JobParking.tickets(gate, flow)
  local prefix = name(gate) .. n4(flow)
  local low, high = Codec.prefix(prefix)
  local found = redis.call('ZRANGEBYLEX', Keys.tickets, low, high)
  for place, member in ipairs(found) do
    found[place] = { read_order(member, #prefix + 1), Codec.read4(member, #prefix + 17) }
  end
  return found
end

-- Change rows by a function of row and place, refile and write them.
local function change(ids, alter)
  local rows, raws = JobRows.load(ids), JobRows.read(ids)
  local written, filed = JobRows.batch(), Filing.batch()
  for place, id in ipairs(ids) do
    local row = rows[id]
    local found, scores = JobFiling.of(row)
    alter(row, place)
    JobFiling.move(filed, found, scores, row.flow, row)
    JobRows.put(written, row, raws[id])
  end
  JobRows.write(written)
  Filing.write(filed)
end

-- Make parked jobs waiting, with the gate's ticket, and add up their time parked.
--   heads: of the jobs; amounts: what each needs at the gate.
function JobParking.feed(heads, gate, amounts)
  change(Codec.fields(heads, 'id'), function(row, place)
    row.state = 'waiting'
    row.ticket, row.ticket_amount = gate, amounts[place]
    row.blocked_ms = row.blocked_ms + Time.now - row.parked_since
    row.parked_at, row.unfit = nil, false
  end)
end

-- Park jobs at a gate now, and remove their tickets. They wait, or are parked at another gate.
--   unfit: how many permits each needs there, if that is more than the gate's capacity; 0 otherwise.
function JobParking.park(ids, gate, unfit)
  change(ids, function(row)
    if row.state == 'parked' then
      row.blocked_ms = row.blocked_ms + Time.now - row.parked_since
    end
    row.state = 'parked'
    row.ticket, row.ticket_amount = nil, unfit
    row.parked_at, row.unfit = gate, unfit > 0
    row.parked_since = Time.now
  end)
end
