-- Flows and policies: values shared by many jobs are stored once, under a number.
-- needs: base.keys, base.codec, base.write, tables.packing
--
-- Numbers start at 1 and are never reused. Values are cached for the rest of the script, and must
-- not be changed.

local Interned = {}

local numbers_of, things_of = {}, { F = {}, P = {} }

-- Return the value of a number, decoded once per script.
--   letter: "F" for flows, "P" for policies.
local function thing(letter, number, decode)
  local known = things_of[letter][number]
  if known == nil then
    local place = letter .. Codec.n4(number)
    known = decode(cmsgpack.unpack(redis.call('HGET', Keys.numbers, place)))
    things_of[letter][number] = known
  end
  return known
end

-- Return the number of a value by its text; a new value gets the next number.
--   letter: "f" for flows, "p" for policies; the values are under the capital letter.
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

-- Return the flow's number; a new flow gets one.
--   key: {lane, tenant, kind, shared} by names.
function Interned.flow_number(key)
  local uses = Codec.pack_uses(key.shared)
  return number('f', cmsgpack.pack({ key.lane, key.tenant, key.kind, uses }))
end

-- Return the flow of a number.
function Interned.flow(flow)
  return thing('F', flow, decode_flow)
end

-- Return the policy's number; a new policy gets one.
--   policy: all fields by name, including defaults.
function Interned.policy_number(policy)
  return number('p', cmsgpack.pack(Packing.encode_policy(policy)))
end

-- Return the policy of a number.
function Interned.policy(policy)
  return thing('P', policy, Packing.decode_policy)
end
