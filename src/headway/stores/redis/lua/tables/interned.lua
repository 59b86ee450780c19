-- Flows and policies: what repeats from job to job stands once, under a number.
-- needs: base.keys, base.codec, base.write
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

-- Values in a fixed order, false for none: equal policies are equal texts.
local function encode_policy(policy)
  local retry, follow = policy.retry, policy.on_final
  return {
    { retry.attempts, retry.base_ms, retry.factor, retry.cap_ms, retry.jitter },
    policy.timeout_ms or false,
    policy.start_within_ms,
    policy.on_deadline,
    policy.reconcile or false,
    policy.reconcile_within_ms,
    follow and { follow.kind, follow.lane or false, follow.states } or false,
    policy.keep_ms,
    policy.key_for_ms,
    policy.cascade or false,
  }
end

local function decode_policy(kept)
  local retry, follow = kept[1], kept[7] or nil
  return {
    retry = {
      attempts = retry[1],
      base_ms = retry[2],
      factor = retry[3],
      cap_ms = retry[4],
      jitter = retry[5],
    },
    timeout_ms = kept[2] or nil,
    start_within_ms = kept[3],
    on_deadline = kept[4],
    reconcile = kept[5] or nil,
    reconcile_within_ms = kept[6],
    on_final = follow and { kind = follow[1], lane = follow[2] or nil, states = follow[3] },
    keep_ms = kept[8],
    key_for_ms = kept[9],
    cascade = kept[10],
  }
end

-- The policy's number; a new policy is given one.
--   policy: all its fields by names, defaults written out.
function Interned.policy_number(policy)
  return number('p', cmsgpack.pack(encode_policy(policy)))
end

-- The policy of a number.
function Interned.policy(policy)
  return thing('P', policy, decode_policy)
end
