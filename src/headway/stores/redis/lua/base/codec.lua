-- Encode numbers and names as bytes that sort as they do, so that no name can run into another.
-- needs:

local Codec = {}

local pack, unpack_bytes = struct.pack, struct.unpack
local find, gsub, sub, byte, char, format =
  string.find, string.gsub, string.sub, string.byte, string.char, string.format

-- Encodes a missing time in six bytes.
Codec.NONE = 281474976710655

-- Cut off each member's bytes before a position, in place. Return the list.
function Codec.cut(members, from)
  for place = 1, #members do
    members[place] = sub(members[place], from)
  end
  return members
end

-- Return one field of each record, in their order.
function Codec.fields(records, name)
  local values = {}
  for place = 1, #records do
    values[place] = records[place][name]
  end
  return values
end

-- Encode a number below 2^32 in four bytes that sort as it does.
function Codec.n4(number)
  return pack('>I4', number)
end

-- Encode a number or time below 2^48 in six bytes that sort as it does.
function Codec.n6(number)
  return pack('>I6', number)
end

-- Decode the number in the four bytes at a position.
function Codec.read4(text, at)
  return (unpack_bytes('>I4', text, at))
end

-- Decode the number in the six bytes at a position.
function Codec.read6(text, at)
  return (unpack_bytes('>I6', text, at))
end

-- Encode a name that others may follow: it sorts as its bytes do, and is no prefix of another. Two
-- NULs end it, and a NUL inside is followed by 255, which sorts after any end.
function Codec.name(text)
  if find(text, '%z') then
    text = gsub(text, '%z', '\0\255')
  end
  return text .. '\0\0'
end

-- Decode the name at a position, and return the position after it, too.
function Codec.read_name(text, at)
  local from = at
  while true do
    local zero = find(text, '%z', from)
    if byte(text, zero + 1) == 0 then
      local name = sub(text, at, zero - 1)
      if from > at then
        name = gsub(name, '%z\255', '\0')
      end
      return name, zero + 2
    end
    from = zero + 2
  end
end

-- Return the bounds of ZRANGEBYLEX for all members that start with these bytes.
function Codec.prefix(text)
  return '[' .. text, Codec.behind(text)
end

-- Return the bound above all members that start with these bytes or sort before them.
function Codec.behind(text)
  local last = #text
  while last > 0 and byte(text, last) == 255 do
    last = last - 1
  end
  if last == 0 then
    return '+'
  end
  return '(' .. sub(text, 1, last - 1) .. char(byte(text, last) + 1)
end

-- Pad a packed value beyond the size up to which the server stores a small hash as a list, because
-- it looks up a field there by scanning up to 512 fields (measured: 8 us per field at 500). The
-- padding is packed nils after the value.
function Codec.long(packed)
  if #packed > 64 then
    return packed
  end
  return packed .. string.rep('\192', 65 - #packed)
end

-- Format a whole number with all its digits; `..` would round it to fourteen.
function Codec.digits(number)
  return format('%.0f', number)
end

-- Convert a reply of HGET or HMGET, which is false for a missing field, to a number or nil.
function Codec.number(text)
  return text and tonumber(text) or nil
end

-- Return whether a text sorts before another by its bytes; `<` depends on the server's locale.
function Codec.less(one, other)
  if one == other then
    return false
  end
  for place = 1, math.min(#one, #other) do
    local left, right = byte(one, place), byte(other, place)
    if left ~= right then
      return left < right
    end
  end
  return #one < #other
end

-- Pack the use of a gate as an array without names, because it is stored with each gated job.
function Codec.pack_use(use)
  return { use.name, use.template, use.amount, use.hold == 'run', use.shared, use.zone }
end

-- Unpack the use of a gate.
function Codec.unpack_use(kept)
  return {
    name = kept[1],
    template = kept[2],
    amount = kept[3],
    hold = kept[4] and 'run' or 'settled',
    shared = kept[5],
    zone = kept[6],
  }
end

-- Pack uses of gates; an array of arrays.
function Codec.pack_uses(uses)
  local kept = {}
  for place, use in ipairs(uses) do
    kept[place] = Codec.pack_use(use)
  end
  return kept
end

-- Unpack uses of gates.
function Codec.unpack_uses(kept)
  local uses = {}
  for place, use in ipairs(kept) do
    uses[place] = Codec.unpack_use(use)
  end
  return uses
end

-- The order of start within a flow: priority, due time, arrival.

-- Return whether an order precedes another.
function Codec.before(a, b)
  if a.priority ~= b.priority then
    return a.priority < b.priority
  end
  if a.due_at ~= b.due_at then
    return a.due_at < b.due_at
  end
  return a.seq < b.seq
end
