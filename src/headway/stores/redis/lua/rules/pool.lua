-- Written by `make lua` from headway.core.gates.pool: change that.
-- Pool: one of several Slots; the handler gets the chosen member.
-- needs: base.python

local Pool = {}

-- The name of the Slots that is one member of a pool.
function Pool.member_gate(pool, member)
  return pool .. '/' .. member
end

-- The member that gives the permits, or None if none can.
function Pool.choose(members, strategy, amount, last)
  local able = {}
  for _, member in ipairs(members) do
    if member.free >= amount then
      able[#able + 1] = member
    end
  end
  if #able == 0 then
    return nil
  end
  if strategy == 'least_used' then
    local least, size
    for _, member in ipairs(able) do
      if least == nil or member.used / member.capacity < size then
        least, size = member, member.used / member.capacity
      end
    end
    return least
  end
  if strategy == 'round_robin' then
    local names = {}
    for at, member in ipairs(members) do
      names[at] = member.name
    end
    local turn = Python.find(names, last) ~= nil and Python.find(names, last) or 0
    local order = {}
    for at2, name in ipairs(names) do
      local place = at2 - 1
      order[name] = (place - turn) % #names
    end
    local least2, size2
    for _, member in ipairs(able) do
      if least2 == nil or order[member.name] < size2 then
        least2, size2 = member, order[member.name]
      end
    end
    return least2
  end
  return able[1]
end
