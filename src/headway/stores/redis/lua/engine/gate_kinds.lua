-- The rules of each kind of gate: its room, when it opens, what a start takes, what can be set.
-- python: stores.ledger.gatekinds.GateRules, stores.ledger.gatekinds.rules_of as of
-- needs: base.time, tables.starts, rules.hours, rules.pool, rules.slots
-- needs: rules.gate_row, engine.gate_cache

local GateKinds = {}

local function is_shut(row)
  return row ~= nil and row.closed_until ~= nil and row.closed_until > Time.now
end

-- Return the permits out at a gate, by its row, which may be nil.
local function used_of(row)
  return row and row.used or 0
end

-- Return a gate's limit: an operator's value for this instance, or the declared one.
local function limit_of(declared, row)
  if row ~= nil and row.capacity ~= nil then
    return row.capacity
  end
  return declared or 0
end

-- Each has:
--   takes_permits: a start takes permits, which are returned.
--   counts_starts: a start is counted for the duration of a window.
--   chooses_member: the permits belong to a member.
--   settable: the values of a declared gate that an operator can set.
--   has_own_limit: one instance of a declared gate can have its own value.
--   fill_room: fills a view with the gate's room now, as if it were not closed.
--   is_full: returns whether the gate certainly has no room until a permit is returned; a kind
--   without it is never certain.
--   opens_at: when a gate without room for an amount opens by itself, if known; if missing, the
--   view's `opens_at` is used.
local kinds = {}

kinds.slots = { takes_permits = true, settable = { capacity = true }, has_own_limit = true }

function kinds.slots.fill_room(view, spec, row)
  view.most = limit_of(spec.capacity, row)
  view.free = Slots.room(view.most, used_of(row))
end

function kinds.slots.is_full(_, _, spec, row)
  return row ~= nil and row.used >= limit_of(spec.capacity, row)
end

kinds.rate = {
  counts_starts = true,
  settable = { limit = true, per_ms = true },
  has_own_limit = true,
}

function kinds.rate.fill_room(view, spec, row)
  view.most = limit_of(spec.limit, row)
  if used_of(row) > 0 then
    view.counted = Starts.total(view.name, Time.now - (spec.per_ms or 0), row.used)
  end
  view.free = Slots.room(view.most, view.counted)
end

function kinds.rate.opens_at(view, spec, row, amount)
  if view.opens_at ~= nil or is_shut(row) or amount > view.most then
    return view.opens_at
  end
  local per_ms = spec.per_ms or 0
  local after_at = Time.now - per_ms
  -- This many starts must leave the window first; each stored time counts at least one.
  local excess = Starts.total(view.name, after_at, used_of(row)) + amount - view.most
  for _, one in ipairs(Starts.oldest(view.name, after_at, math.max(1, excess))) do
    excess = excess - one[2]
    if excess <= 0 then
      return one[1] + per_ms
    end
  end
  return nil
end

kinds.hours = { settable = {} }

function kinds.hours.fill_room(view, _, row)
  local opens = row and row.opens or {}
  if not Hours.is_open(opens, Time.now) then
    view.free, view.shut = 0, true
    view.opens_at = Hours.next_opening(opens, Time.now)
  end
end

kinds.pool = { takes_permits = true, chooses_member = true, settable = { members = true } }

function kinds.pool.fill_room(view, spec, row, cache)
  view.strategy = spec.strategy
  view.last = row and row.last or ''
  view.most, view.free = 0, 0
  local opens_at
  for place, member in ipairs(spec.members) do
    local own = GateCache.find(cache, Pool.member_gate(view.name, member[1]))
    local most, used, shut = limit_of(member[2], own), used_of(own), is_shut(own)
    local free = shut and 0 or Slots.room(most, used)
    if shut and own.closed_until < GateRow.FOREVER then
      opens_at = math.min(opens_at or own.closed_until, own.closed_until)
    end
    view.members[place] = { name = member[1], capacity = most, used = used, free = free }
    view.most, view.free = math.max(view.most, most), math.max(view.free, free)
  end
  -- Set even while another member is free, because it may be taken in this step.
  view.opens_at = opens_at
end

function kinds.pool.is_full(cache, name, spec)
  for _, member in ipairs(spec.members) do
    local own = GateCache.find(cache, Pool.member_gate(name, member[1]))
    if own == nil or own.used < limit_of(member[2], own) then
      return false
    end
  end
  return true
end

-- Fill a view with the gate's room now, as if it were not closed.
--   kind: rules of the kind; row: of the gate, nil for none.
function GateKinds.fill_room(kind, cache, view, spec, row)
  kind.fill_room(view, spec, row, cache)
end

-- Return when a gate without room for an amount opens by itself, if known.
function GateKinds.opens_at(kind, cache, view, spec, amount)
  if kind.opens_at == nil then
    return view.opens_at
  end
  return kind.opens_at(view, spec, GateCache.find(cache, view.name), amount)
end

-- Return whether a gate certainly has no room until a permit is returned.
function GateKinds.is_full(kind, cache, name, spec, row)
  return kind.is_full ~= nil and kind.is_full(cache, name, spec, row)
end

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
