-- The rules of each kind of gate, by its name; see `GateRules` in Python.
-- python: stores.ledger.gatekinds.rules_of as of
-- needs: rules.gate_rules, rules.pool

local GateKinds = {}

local kinds = {
  slots = {
    fill_room = GateRules.slots_room,
    is_full = GateRules.are_slots_full,
    opens_at = GateRules.opens_as_seen,
    takes_permits = true,
    settable = { capacity = true },
    has_own_limit = true,
  },
  rate = {
    fill_room = GateRules.rate_room,
    is_full = GateRules.is_never_full,
    opens_at = GateRules.rate_opens_at,
    counts_starts = true,
    settable = { limit = true, per_ms = true },
    has_own_limit = true,
  },
  hours = {
    fill_room = GateRules.hours_room,
    is_full = GateRules.is_never_full,
    opens_at = GateRules.opens_as_seen,
    settable = {},
  },
  pool = {
    fill_room = GateRules.pool_room,
    is_full = GateRules.is_pool_full,
    opens_at = GateRules.opens_as_seen,
    takes_permits = true,
    chooses_member = true,
    settable = { members = true },
  },
}

-- Return the rules of a kind.
function GateKinds.of(kind)
  return kinds[kind]
end

-- Return the gate whose permits a start takes, and its pool ('' for none).
--   member: chosen by the claim.
function GateKinds.permit_gate(kind, name, member)
  if kinds[kind].chooses_member then
    return Pool.member_gate(name, member), name
  end
  return name, ''
end
