-- The order of start within a flow: priority, due time, arrival.
-- needs:

local Order = {}

-- Whether an order stands before another.
function Order.before(a, b)
  if a.priority ~= b.priority then
    return a.priority < b.priority
  end
  if a.due_at ~= b.due_at then
    return a.due_at < b.due_at
  end
  return a.seq < b.seq
end

-- Whether two orders are the same job's.
function Order.same(a, b)
  return a.priority == b.priority and a.due_at == b.due_at and a.seq == b.seq
end
