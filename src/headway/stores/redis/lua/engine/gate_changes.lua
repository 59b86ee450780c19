-- Changes of what a gate is: declared by code, set and reset by an operator, opened.
-- needs: base.time, base.run, base.python, tables.jobs, tables.permits, tables.gates, rules.pool
-- needs: engine.gate_book, engine.gate_kinds, engine.gate_names, engine.feeding, engine.horizon

local GateChanges = {}

-- Rows that one step of a walk reads.
local PAGE = 1000

local function is_ours(row, gate, hold)
  if row.state ~= 'running' and hold ~= 'settled' then
    return false
  end
  if gate == 'all' then
    return true
  end
  local what, name = string.match(gate, '^(%a+):(.*)$')
  return row[what] == name
end

-- The jobs of these that hold a permit of the gate, as a set of ids.
local function holders(gate, rows)
  local ids, have = {}, {}
  for place, row in ipairs(rows) do
    ids[place] = row.id
  end
  for _, permit in ipairs(Permits.of_jobs(ids)) do
    if permit.gate == gate then
      have[permit.job] = true
    end
  end
  return have
end

local function take_for(step, gate, hold, rows)
  local have, new, changed = holders(gate, rows), {}, {}
  for _, row in ipairs(rows) do
    if not have[row.id] then
      new[#new + 1] = {
        gate = gate,
        job = row.id,
        run = row.run,
        pool = '',
        amount = 1,
        since = row.claimed_at or Time.now,
        hold = hold,
      }
      row.care, row.gated = true, true
      row.members[gate] = ''
      changed[#changed + 1] = row
    end
  end
  if #new > 0 then
    Permits.add(new)
    GateBook.use_up(step.book, gate, '', #new, '')
    Jobs.save(changed)
  end
end

-- Counts permits of an implicit gate from now on, for those who run already too.
--
-- `gate` is `all`, `lane:…`, `tenant:…` or `kind:…`, about to be capped.
function GateChanges.track(step, gate)
  local hold, after = GateNames.implicit_hold(gate), ''
  while true do
    local held = Jobs.held(after, PAGE)
    if #held == 0 then
      return
    end
    after = held[#held].id
    local ours = {}
    for _, row in ipairs(held) do
      if is_ours(row, gate, hold) then
        ours[#ours + 1] = row
      end
    end
    take_for(step, gate, hold, ours)
  end
end

-- Code says what a gate is. Returns whether anything changed.
--
-- Refuses with InvalidValue where it is declared as another kind.
function GateChanges.declare_gate(step, spec)
  local known = Gates.templates()[spec.name]
  if known ~= nil and Python.same(known.spec, spec) then
    return false
  end
  if known ~= nil and (known.spec.kind ~= spec.kind or known.spec.shared ~= spec.shared) then
    local old = (known.spec.shared and 'shared ' or 'keyed ') .. known.spec.kind
    local new = (spec.shared and 'shared ' or 'keyed ') .. spec.kind
    Run.refuse(
      'InvalidValue',
      'the gate ' .. Run.quoted(spec.name) .. ' is declared as a ' .. old .. ', not a ' .. new,
      'give the new gate a new name; jobs wait at the old one'
    )
  end
  GateChanges.save_template(step, { spec = spec, override = known and known.override })
  return true
end

-- The names and zones of the hours that stand under a template.
local function hours_of(template)
  local found, after = {}, ''
  while true do
    local rows = Gates.page(after, PAGE)
    if #rows == 0 then
      return found
    end
    for _, row in ipairs(rows) do
      if row.template == template then
        found[#found + 1] = { name = row.name, template = template, zone = row.zone or 'UTC' }
      end
    end
    after = rows[#rows].name
  end
end

local function recompute_hours(step, template)
  local hours = hours_of(template)
  Horizon.require(step.book, hours)
  for _, one in ipairs(hours) do
    Horizon.extend(step.book, one.name, template, one.zone)
  end
end

-- Keyed gates of a template that have jobs parked are looked at, by their timers, soon.
local function look_again(step, template)
  local after = ''
  while true do
    local names = Jobs.parked_gates(after, PAGE)
    if #names == 0 then
      return
    end
    for _, name in ipairs(names) do
      if GateNames.place_of(Gates.templates(), name).template == template then
        GateBook.change(step.book, name, template, '').timer_at = Time.now
      end
    end
    after = names[#names]
  end
end

-- Writes a declared gate, and lets all its instances see it at once.
function GateChanges.save_template(step, row)
  Gates.save_template(row)
  step.book.views = {}
  local spec = row.spec
  if spec.hours ~= nil then
    recompute_hours(step, spec.name)
  elseif not spec.shared then
    look_again(step, spec.name)
  end
end

-- The spec with an operator's numbers in it; refused where they do not belong to such a gate.
local function changed(declared, item)
  local spec = Gates.current(declared)
  local kind = spec.kind
  local settable = GateKinds.of(kind).settable
  for _, value in ipairs({ 'capacity', 'limit', 'per_ms', 'members' }) do
    if item[value] ~= nil and not settable[value] then
      Run.refuse(
        'InvalidValue',
        'the gate ' .. Run.quoted(item.name) .. ' is a ' .. kind,
        'Slots has a capacity, Rate a limit and per, Pool members'
      )
    end
  end
  return Python.replace(spec, {
    capacity = item.capacity,
    limit = item.limit,
    per_ms = item.per_ms,
    members = item.members,
  })
end

local function after_change(step, name)
  local row = GateBook.find(step.book, name)
  GateBook.forget_view(step.book, name)
  local gates = { name }
  if row ~= nil and row.pool ~= '' and row.pool ~= name then
    gates[2] = row.pool
  end
  for _, gate in ipairs(gates) do
    Feeding.refit(step.book, gate)
    Feeding.feed_gate(step.book, gate)
  end
  Run.wake(nil)
end

local function set_instance(step, item)
  if item.members ~= nil or item.per_ms ~= nil then
    Run.refuse(
      'InvalidValue',
      Run.quoted(item.name) .. ' is one instance of a gate',
      'set members and windows on the declared gate'
    )
  end
  local value = item.capacity or item.limit
  if GateNames.is_implicit(item.name) then
    GateChanges.track(step, item.name)
    GateBook.change(step.book, item.name, '', '').capacity = value
    Run.wake(nil)
    return
  end
  local place = GateNames.place_of(Gates.templates(), item.name)
  local spec = GateBook.spec(step.book, place.template)
  local kind = spec and spec.kind
  if place.pool == '' and not (kind and GateKinds.of(kind).has_own_limit) then
    Run.refuse(
      'InvalidValue',
      Run.quoted(item.name) .. ' is a ' .. (kind or 'None'),
      'set its members, or the capacity of `pool/member`'
    )
  end
  GateBook.change(step.book, item.name, place.template, place.pool).capacity = value
  after_change(step, item.name)
end

-- An operator's values of a gate.
--
-- Refuses with UnknownGate where nothing declares it, and with InvalidValue where the value does
-- not belong to such a gate; the step is rolled back then.
function GateChanges.set_gate(step, item)
  local declared = Gates.templates()[item.name]
  if declared == nil then
    set_instance(step, item)
    return
  end
  local override = changed(declared, item)
  GateChanges.save_template(step, { spec = declared.spec, override = override })
  if declared.spec.shared then
    Run.wake(nil)
  end
end

local function reset_instance(step, name)
  local row = GateBook.find(step.book, name)
  if row ~= nil and row.capacity ~= nil then
    GateBook.change(step.book, name, row.template, row.pool).capacity = nil
    after_change(step, name)
  end
end

-- Forgets an operator's values; what code declares holds again.
--
-- Refuses with UnknownGate where nothing declares it; the step is rolled back then.
function GateChanges.reset_gate(step, name)
  local declared = Gates.templates()[name]
  if declared ~= nil then
    GateChanges.save_template(step, { spec = declared.spec })
    for _, member in ipairs(declared.spec.members or {}) do
      reset_instance(step, Pool.member_gate(name, member[1]))
    end
  elseif GateBook.find(step.book, name) == nil then
    GateNames.place_of(Gates.templates(), name)
  end
  reset_instance(step, name)
end

-- Ends a closing. Returns whether it was closed.
--
-- Refuses with UnknownGate where nothing declares it; the step is rolled back then.
function GateChanges.open_gate(step, name)
  local row = GateBook.find(step.book, name)
  if row == nil then
    GateNames.place_of(Gates.templates(), name)
    return false
  end
  if row.closed_until == nil then
    return false
  end
  row = GateBook.change(step.book, name, row.template, row.pool)
  row.closed_until, row.closed_by, row.closed_reason = nil, '', ''
  after_change(step, name)
  return true
end
