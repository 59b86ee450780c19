-- The room that a gate has now, from its declaration and its row.
-- needs: base.time, tables.starts, rules.hours, rules.pool, rules.slots
-- needs: engine.states

local GateViews = {}

-- A view that is open and unlimited; the book narrows it.
--   kind: nil for an implicit gate that is only open or closed.
--   template: under which it is declared; '' for an implicit gate.
function GateViews.new(name, kind, template)
  return {
    name = name,
    kind = kind,
    template = template or '',
    most = Slots.UNLIMITED,
    free = Slots.UNLIMITED,
    shut = false,
    members = {},
    strategy = 'least_used',
    last = '',
    counted = 0,
  }
end

-- Whether a gate with this row (nil for none) is closed now.
function GateViews.is_shut(row)
  return row ~= nil and row.closed_until ~= nil and row.closed_until > Time.now
end

local function capacity_of(declared, row)
  if row ~= nil and row.capacity ~= nil then
    return row.capacity
  end
  return declared or 0
end

-- Permits out by a gate's row, which may be none.
function GateViews.used_of(row)
  return row and row.used or 0
end

-- Shuts the view of a gate that is closed now.
function GateViews.close(view, row)
  if not GateViews.is_shut(row) then
    return
  end
  local opens_at = view.free == 0 and view.opens_at or 0
  view.free, view.shut = 0, true
  if row.closed_until >= States.FOREVER then
    view.opens_at = nil
  else
    view.opens_at = math.max(row.closed_until, opens_at)
  end
end

local function look_slots(view, spec, row)
  view.most = capacity_of(spec.capacity, row)
  view.free = Slots.room(view.most, GateViews.used_of(row))
end

local function look_rate(view, spec, row)
  view.most = capacity_of(spec.limit, row)
  if GateViews.used_of(row) > 0 then
    view.counted = Starts.total(view.name, Time.now - (spec.per_ms or 0), row.used)
  end
  view.free = Slots.room(view.most, view.counted)
end

local function look_hours(view, _, row)
  local opens = row and row.opens or {}
  if not Hours.is_open(opens, Time.now) then
    view.free, view.shut = 0, true
    view.opens_at = Hours.next_opening(opens, Time.now)
  end
end

-- When the first closed member of a pool opens by itself, if that is known.
local function member_opens_at(pool, spec, find)
  local first
  for _, member in ipairs(spec.members) do
    local row = find(Pool.member_gate(pool, member[1]))
    if GateViews.is_shut(row) and row.closed_until < States.FOREVER then
      first = math.min(first or row.closed_until, row.closed_until)
    end
  end
  return first
end

local function look_pool(view, spec, row, find)
  view.strategy = spec.strategy
  view.last = row and row.last or ''
  view.most, view.free = 0, 0
  for place, member in ipairs(spec.members) do
    local own = find(Pool.member_gate(view.name, member[1]))
    local most, used = capacity_of(member[2], own), GateViews.used_of(own)
    local free = GateViews.is_shut(own) and 0 or Slots.room(most, used)
    view.members[place] = { name = member[1], capacity = most, used = used, free = free }
    view.most, view.free = math.max(view.most, most), math.max(view.free, free)
  end
  -- Set even while another member is free: that one may be taken in this step.
  view.opens_at = member_opens_at(view.name, spec, find)
end

local LOOKS = { slots = look_slots, rate = look_rate, hours = look_hours, pool = look_pool }

-- The view of a declared gate.
--   row: what is remembered of it; nil for nothing.
--   find: gives the row of another gate, a pool's member, by its name.
function GateViews.view(name, spec, row, find)
  local view = GateViews.new(name, spec.kind, spec.name)
  LOOKS[spec.kind](view, spec, row, find)
  GateViews.close(view, row)
  local one = row and row.reserved
  if one and one.until_at > Time.now and one.amount <= view.most then
    view.reserved = one
  end
  return view
end
