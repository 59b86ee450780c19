-- Write declared gates, and update their instances.
-- python: stores.ledger.gatechanges.save_template, stores.ledger.gatechanges.track_implicit
-- python: stores.ledger.gatechanges._with_values
-- needs: rules.cached_gates, base.codec, base.time, base.run, base.python, tables.jobs
-- needs: tables.permits, tables.gates, engine.gate_cache, engine.gate_kinds, engine.gate_names
-- needs: engine.horizon

local GateTemplates = {}

-- Rows per read.
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

-- Return which of these jobs hold a permit of the gate, as a set of ids.
local function holders(gate, rows)
  local have = {}
  for _, permit in ipairs(Permits.of_jobs(Codec.fields(rows, 'id'))) do
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
    CachedGates.count_taken(step.cache, gate, '', #new, '')
    Jobs.save(changed)
  end
end

-- Count permits of an implicit gate from now on, including jobs that already run.
--
-- `gate` is `all`, `lane:…`, `tenant:…` or `kind:…`, about to be capped.
function GateTemplates.track_implicit(step, gate)
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

-- Return the names and zones of a template's hours.
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
  Horizon.require(step.cache, hours)
  for _, one in ipairs(hours) do
    Horizon.extend(step.cache, one.name, template, one.zone)
  end
end

-- Set timers so that the template's keyed gates with parked jobs are checked soon.
local function set_timers(step, template)
  local after = ''
  while true do
    local names = Jobs.parked_gates(after, PAGE)
    if #names == 0 then
      return
    end
    for _, name in ipairs(names) do
      if GateCache.place_of(step.cache, name).template == template then
        GateCache.change(step.cache, name, template, '').timer_at = Time.now
      end
    end
    after = names[#names]
  end
end

-- Write a declared gate, and apply it to all its instances immediately.
function GateTemplates.save_template(step, row)
  Gates.save_template(row)
  step.cache.views = {}
  local spec = row.spec
  if spec.hours ~= nil then
    recompute_hours(step, spec.name)
  elseif not spec.shared then
    set_timers(step, spec.name)
  end
end

-- Return the spec with an operator's values. Refuse values that do not belong to this kind of gate.
function GateTemplates.with_values(_, declared, item)
  local spec = Gates.current(declared)
  local kind = spec.kind
  local settable = GateKinds.of(kind).settable
  for _, value in ipairs({ 'capacity', 'limit', 'per_ms', 'members' }) do
    if item[value] ~= nil and not settable[value] then
      Run.refuse(
        'InvalidValue',
        'the gate '
          .. Run.quoted(item.name)
          .. ' is of kind '
          .. Run.quoted(kind)
          .. ', which has no '
          .. Run.quoted(value),
        'Slots has a capacity, Rate a limit and per, Pool members'
      )
    end
  end
  local changed = Python.replace(spec, {
    capacity = item.capacity,
    limit = item.limit,
    per_ms = item.per_ms,
    members = item.members,
  })
  GateNames.refuse_members_name(changed)
  return changed
end
