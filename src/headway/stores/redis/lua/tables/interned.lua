-- Flows and policies: what repeats from job to job stands once, under a number.
-- needs: base.keys, base.codec, base.write, tables.packing
--
-- Numbers begin at 1 and are never given twice. What is read is kept for the rest of the script and
-- is not to be changed.

local Interned = {}

local numbers_of, things_of = {}, {}

-- The thing of a number, decoded once in the script.
--   letter: "F" for flows, "P" for policies.
local function thing(letter, number, decode)
  local place = letter .. Codec.n4(number)
  local known = things_of[place]
  if known == nil then
    known = decode(cmsgpack.unpack(redis.call('HGET', Keys.numbers, place)))
    things_of[place] = known
  end
  return known
end

-- The number of a thing by its text; a new one is given the next.
--   letter: "f" for flows, "p" for policies; their things stand under the capital.
local function number(letter, text)
  local place = letter .. text
  local known = numbers_of[place]
  if known == nil then
    known = Codec.number(redis.call('HGET', Keys.numbers, place))
    if known == nil then
      known = Write.hincrby(Keys.numbers, '#' .. letter, 1)
      local back = string.upper(letter) .. Codec.n4(known)
      Write.hset(Keys.numbers, { place, known, back, text })
    end
    numbers_of[place] = known
  end
  return known
end

local function decode_flow(kept)
  return { lane = kept[1], tenant = kept[2], kind = kept[3], shared = Codec.unpack_uses(kept[4]) }
end

-- The flow's number; a new flow is given one.
--   key: {lane, tenant, kind, shared} by names.
function Interned.flow_number(key)
  local uses = Codec.pack_uses(key.shared)
  return number('f', cmsgpack.pack({ key.lane, key.tenant, key.kind, uses }))
end

-- The flow of a number.
function Interned.flow(flow)
  return thing('F', flow, decode_flow)
end

-- The policy's number; a new policy is given one.
--   policy: all its fields by names, defaults written out.
function Interned.policy_number(policy)
  return number('p', cmsgpack.pack(Packing.encode_policy(policy)))
end

-- The policy of a number.
function Interned.policy(policy)
  return thing('P', policy, Packing.decode_policy)
end
