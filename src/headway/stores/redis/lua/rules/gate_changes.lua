-- Written by `make lua` from headway.stores.ledger.gatechanges: change that.
-- Changes of gates: declarations by code; values and openings set by operators.
-- needs: base.python, base.run, engine.feeding, engine.gate_book, engine.gate_kinds,
-- needs: engine.gate_names, engine.gate_templates, rules.book, rules.parked, rules.pool

local GateChanges = {}

-- Declare a gate, and return whether anything changed.
function GateChanges.declare_gate(step, spec)
  local known = GateBook.template(step.book, spec.name)
  if known ~= nil and Python.same(known.spec, spec) then
    return false
  end
  if known ~= nil and (known.spec.kind ~= spec.kind or known.spec.shared ~= spec.shared) then
    local old = (known.spec.shared and 'shared' or 'keyed') .. ' ' .. known.spec.kind
    local new = (spec.shared and 'shared' or 'keyed') .. ' ' .. spec.kind
    local message = 'the gate ' .. Run.quoted(spec.name) .. ' is declared as a ' .. old .. ', not a ' .. new
    Run.refuse('InvalidValue', message, 'give the new gate another name; jobs are waiting at the old one')
  end
  GateNames.refuse_members_name(spec)
  local value
  if known then
    value = known.override
  else
    value = nil
  end
  GateTemplates.save_template(step, { spec = spec, override = value })
  return true
end

-- Set an operator's values on a gate.
function GateChanges.set_gate(step, item)
  local declared = GateBook.template(step.book, item.name)
  if declared ~= nil then
    local override = GateTemplates.with_values(step, declared, item)
    GateTemplates.save_template(step, { spec = declared.spec, override = override })
    return
  end
  GateChanges.set_instance(step, item)
end

function GateChanges.set_instance(step, item)
  if item.members ~= nil or item.per_ms ~= nil then
    local message = Run.quoted(item.name) .. ' is one instance of a gate'
    Run.refuse('InvalidValue', message, 'set members and windows on the declared gate')
  end
  local value
  if item.capacity ~= nil then
    value = item.capacity
  else
    value = item.limit
  end
  if GateNames.is_implicit(item.name) then
    GateTemplates.track_implicit(step, item.name)
    GateBook.change(step.book, item.name, '').capacity = value
    return
  end
  local place = GateBook.place_of(step.book, item.name)
  local spec = GateBook.spec(step.book, place.template)
  if place.pool == '' and (spec == nil or not GateKinds.of(spec.kind).has_own_limit) then
    local message = Run.quoted(item.name) .. ' is a ' .. (spec and spec.kind or 'gate')
    Run.refuse('InvalidValue', message, 'set its members, or the capacity of `pool/member`')
  end
  GateBook.change(step.book, item.name, place.template, place.pool).capacity = value
  GateChanges.after_change(step, item.name)
end

function GateChanges.after_change(step, name)
  local row = GateBook.find(step.book, name)
  Book.forget_view(step.book, name)
  Parked.refit(step.book, name)
  Feeding.feed_gate(step.book, name)
  if row ~= nil and not (row.pool == '' or row.pool == name) then
    Parked.refit(step.book, row.pool)
    Feeding.feed_gate(step.book, row.pool)
  end
end

-- Remove an operator's values, so that the declared ones apply again.
function GateChanges.reset_gate(step, name)
  local declared = GateBook.template(step.book, name)
  if declared ~= nil then
    GateTemplates.save_template(step, { spec = declared.spec })
    for _, each in ipairs(declared.spec.members) do
      local member, _ = each[1], each[2]
      GateChanges.reset_instance(step, Pool.member_gate(name, member))
    end
  end
  local row = GateBook.find(step.book, name)
  if row == nil and declared == nil then
    GateBook.place_of(step.book, name)
  end
  GateChanges.reset_instance(step, name)
end

function GateChanges.reset_instance(step, name)
  local row = GateBook.find(step.book, name)
  if row ~= nil and row.capacity ~= nil then
    GateBook.change(step.book, name, row.template, row.pool).capacity = nil
    GateChanges.after_change(step, name)
  end
end

-- Open a gate, and return whether it was closed.
function GateChanges.open_gate(step, name)
  local row = GateBook.find(step.book, name)
  if row == nil then
    GateBook.place_of(step.book, name)
    return false
  end
  if row.closed_until == nil then
    return false
  end
  row = GateBook.change(step.book, name, row.template, row.pool)
  row.closed_until, row.closed_by, row.closed_reason = nil, '', ''
  GateChanges.after_change(step, name)
  return true
end
