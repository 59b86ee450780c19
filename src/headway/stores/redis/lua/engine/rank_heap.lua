-- A binary heap of flows by the rank of their head; no two are equal, for each has its place.
-- needs:

local RankHeap = {}

-- By priority, level, own starts, due time, arrival, then the flow's place.
local function before(a, b)
  if a.priority ~= b.priority then
    return a.priority < b.priority
  end
  if a.level ~= b.level then
    return a.level < b.level
  end
  if a.own ~= b.own then
    return a.own < b.own
  end
  if a.due_at ~= b.due_at then
    return a.due_at < b.due_at
  end
  if a.seq ~= b.seq then
    return a.seq < b.seq
  end
  return a.place < b.place
end

-- Puts one in.
function RankHeap.push(heap, entry)
  local at = #heap + 1
  while at > 1 do
    local parent = math.floor(at / 2)
    if not before(entry, heap[parent]) then
      break
    end
    heap[at] = heap[parent]
    at = parent
  end
  heap[at] = entry
end

-- Takes the first out; the heap is not empty.
function RankHeap.pop(heap)
  local first, count = heap[1], #heap
  local moved = heap[count]
  heap[count] = nil
  count = count - 1
  if count == 0 then
    return first
  end
  local at = 1
  while true do
    local child = at * 2
    if child > count then
      break
    end
    if child < count and before(heap[child + 1], heap[child]) then
      child = child + 1
    end
    if not before(heap[child], moved) then
      break
    end
    heap[at] = heap[child]
    at = child
  end
  heap[at] = moved
  return first
end
