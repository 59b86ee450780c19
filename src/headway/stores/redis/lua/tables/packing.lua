-- Packing of policies and plain rows, shared with the quick modules.
-- needs:

local Packing = {}

local function encode_follow_up(follow)
  local policy = follow.policy and Packing.encode_policy(follow.policy)
  return { follow.kind, follow.lane or false, follow.states, policy }
end

-- Return the values of a policy, false for none.
--   policy: all fields by name, including defaults.
function Packing.encode_policy(policy)
  local retry, follow, accepted = policy.retry, policy.on_final, policy.on_accepted
  return {
    { retry.attempts, retry.base_ms, retry.factor, retry.cap_ms, retry.jitter },
    policy.timeout_ms or false,
    policy.start_within_ms,
    policy.on_deadline,
    policy.reconcile or false,
    policy.reconcile_within_ms,
    follow and encode_follow_up(follow) or false,
    policy.keep_ms,
    policy.key_for_ms,
    policy.cascade or false,
    -- Omitted if there is none, as before it existed.
    accepted and encode_follow_up(accepted) or nil,
  }
end

local function decode_follow_up(kept)
  local policy = kept[4] and Packing.decode_policy(kept[4])
  return { kind = kept[1], lane = kept[2] or nil, states = kept[3], policy = policy }
end

-- Return a policy by names from its values.
function Packing.decode_policy(kept)
  local retry, follow, accepted = kept[1], kept[7] or nil, kept[11]
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
    on_final = follow and decode_follow_up(follow),
    keep_ms = kept[8],
    key_for_ms = kept[9],
    cascade = kept[10],
    on_accepted = accepted and decode_follow_up(accepted),
  }
end

-- The row of a new job with nothing but its arguments, as `job_record` packs it.

local pack, char, byte = struct.pack, string.char, string.byte
-- Encodes a missing time; see base/codec.
local NONE = 281474976710655
-- The bytes from after the time of creation up to the arguments, of a job that never ran.
local FRESH = pack('>I4I4I6I6I6I6I6BI2I2I4', 0, 0, 0, 0, NONE, NONE, NONE, 0, 0, 0, 0)
local LETTERS = { waiting = byte('w'), scheduled = byte('s') }

-- Pack the row.
--   place: {flow, policy}, their numbers.
--   args: short enough for the row.
function Packing.plain_row(state, place, priority, due_at, seq, created_at, args)
  local head = pack(
    '>BBI4I4I6I6I4I6',
    LETTERS[state],
    0,
    place.flow,
    priority,
    due_at,
    seq,
    place.policy,
    created_at
  )
  return head .. FRESH .. args .. char(seq % 256)
end
