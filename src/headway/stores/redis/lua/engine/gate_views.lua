-- The room that a gate has now, from its declaration and its row.
-- needs: base.time, rules.slots, engine.states, engine.gate_kinds

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

-- Shuts the view of a gate that is closed now.
function GateViews.close(view, row)
  if not GateKinds.is_shut(row) then
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

-- The view of a declared gate.
--   row: what is remembered of it; nil for nothing.
--   find: gives the row of another gate, a pool's member, by its name.
function GateViews.view(name, spec, row, find)
  local view = GateViews.new(name, spec.kind, spec.name)
  GateKinds.of(spec.kind).look(view, spec, row, find)
  GateViews.close(view, row)
  local one = row and row.reserved
  if one and one.until_at > Time.now and one.amount <= view.most then
    view.reserved = one
  end
  return view
end
