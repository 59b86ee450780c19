-- Parts of Python's library, for rules that `tools/lua` translates from Python.
-- python: core.retry.draw
-- needs:

local Python = {}

-- Return the elements from a place, counted from 1, to another; nil means the last.
function Python.slice(list, first, last)
  local part = {}
  for place = first, math.min(last or #list, #list) do
    part[#part + 1] = list[place]
  end
  return part
end

-- Concatenate lists.
function Python.joined(...)
  local all = {}
  for _, list in ipairs({ ... }) do
    for _, one in ipairs(list) do
      all[#all + 1] = one
    end
  end
  return all
end

-- Return the place of an element, counted from 1; nil if it is missing.
function Python.find(list, wanted)
  for place, one in ipairs(list) do
    if one == wanted then
      return place
    end
  end
  return nil
end

-- Return the elements, each once, in the order of their first occurrence.
function Python.unique(list)
  local known, all = {}, {}
  for _, one in ipairs(list) do
    if not known[one] then
      known[one] = true
      all[#all + 1] = one
    end
  end
  return all
end

-- Return the members of a set that are not in another.
function Python.minus(set, other)
  local left = {}
  for one in pairs(set) do
    left[one] = not other[one] or nil
  end
  return left
end

-- Remove a value from a table, and return it.
function Python.pop(table, key)
  local value = table[key]
  table[key] = nil
  return value
end

-- Return the values of a table as a set.
function Python.values(table)
  local set = {}
  for _, one in pairs(table) do
    set[one] = true
  end
  return set
end

-- Return a copy of a record with some fields changed.
function Python.replace(record, changes)
  local copy = {}
  for name, value in pairs(record) do
    copy[name] = value
  end
  for name, value in pairs(changes) do
    copy[name] = value
  end
  return copy
end

-- Replace each occurrence of a part of a text, without patterns.
function Python.replace_text(text, part, by)
  local pieces, from = {}, 1
  while true do
    local first, last = string.find(text, part, from, true)
    if first == nil then
      pieces[#pieces + 1] = string.sub(text, from)
      return table.concat(pieces)
    end
    pieces[#pieces + 1] = string.sub(text, from, first - 1)
    pieces[#pieces + 1] = by
    from = last + 1
  end
end

-- Return how many tuples of a sorted list have at most this value at a place.
function Python.bisect_right(list, value, place)
  local low, high = 0, #list
  while low < high do
    local middle = math.floor((low + high) / 2)
    if list[middle + 1][place] <= value then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Return whether a tuple sorts before another of the same form; nil if they are equal.
local function less(a, b)
  for place = 1, #a do
    local one, other = a[place], b[place]
    if one ~= other then
      if type(one) ~= 'table' then
        return one < other
      end
      local found = less(one, other)
      if found ~= nil then
        return found
      end
    end
  end
  return nil
end

Python.less = less

-- Return whether two tuples of numbers or texts of the same length are equal.
function Python.alike(a, b)
  for place = 1, #a do
    if a[place] ~= b[place] then
      return false
    end
  end
  return true
end

-- Push an item onto a heap.
function Python.heappush(heap, item)
  local at = #heap + 1
  while at > 1 do
    local parent = math.floor(at / 2)
    if not less(item, heap[parent]) then
      break
    end
    heap[at] = heap[parent]
    at = parent
  end
  heap[at] = item
end

-- Put an item at a place of a heap of `count` items, or below it, where it belongs.
local function sift(heap, count, at, item)
  while at * 2 <= count do
    local child = at * 2
    if child < count and less(heap[child + 1], heap[child]) then
      child = child + 1
    end
    if not less(heap[child], item) then
      break
    end
    heap[at] = heap[child]
    at = child
  end
  heap[at] = item
end

-- Pop the least item of a non-empty heap.
function Python.heappop(heap)
  local least, count = heap[1], #heap
  local moved = heap[count]
  heap[count] = nil
  if count > 1 then
    sift(heap, count - 1, 1, moved)
  end
  return least
end

-- Turn a list into a heap.
function Python.heapify(list)
  for at = math.floor(#list / 2), 1, -1 do
    sift(list, #list, at, list[at])
  end
end

-- Derive a number from 0 to below 1 from a text: 52 bits, exact in a double.
function Python.draw(seed)
  return tonumber(string.sub(redis.sha1hex(seed), 1, 13), 16) / 2 ^ 52
end

-- Comparison of plain values from messages.

-- Return whether plain values are equal; tables are compared by their contents.
function Python.same(a, b)
  if a == b then
    return true
  end
  if type(a) ~= 'table' or type(b) ~= 'table' then
    return false
  end
  for key, value in pairs(a) do
    if not Python.same(value, b[key]) then
      return false
    end
  end
  for key in pairs(b) do
    if a[key] == nil then
      return false
    end
  end
  return true
end
