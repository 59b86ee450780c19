-- Written by `make lua` from headway.core.gates.pool: change that.
-- Pool: one of several Slots; the handler gets the chosen member.
-- needs: base.python

local Pool = {}

-- Return the name of a pool member's own Slots.
function Pool.member_gate(pool, member)
  return pool .. '/' .. member
end

-- Choose a member with at least `amount` free; None if there is none.
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
    local list = {}
    for at, member in ipairs(able) do
      list[at] = member.used / member.capacity
    end
    return Python.min(able, list)
  end
  if strategy == 'round_robin' then
    local names = {}
    for at2, member in ipairs(members) do
      names[at2] = member.name
    end
    local turn = Python.find(names, last) ~= nil and (Python.find(names, last) - 1) + 1 or 0
    local order = {}
    for at3, name in ipairs(names) do
      local place = at3 - 1
      order[name] = (place - turn) % #names
    end
    local list2 = {}
    for at4, member in ipairs(able) do
      list2[at4] = order[member.name]
    end
    return Python.min(able, list2)
  end
  return able[1]
end
