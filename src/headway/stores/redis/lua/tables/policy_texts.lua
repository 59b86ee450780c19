-- Policies as they are kept: values in a fixed order, so that equal policies are equal texts.
-- needs:

local PolicyTexts = {}

-- The values of a policy, false for none.
--   policy: all its fields by names, defaults written out.
function PolicyTexts.encode(policy)
  local retry, follow, accepted = policy.retry, policy.on_final, policy.on_accepted
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
    -- Left out where there is none, as it was before there was any.
    accepted and { accepted.kind, accepted.lane or false, accepted.states } or nil,
  }
end

-- The policy of values, by names.
function PolicyTexts.decode(kept)
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
    on_final = follow and { kind = follow[1], lane = follow[2] or nil, states = follow[3] },
    keep_ms = kept[8],
    key_for_ms = kept[9],
    cascade = kept[10],
    on_accepted = accepted
      and { kind = accepted[1], lane = accepted[2] or nil, states = accepted[3] },
  }
end
