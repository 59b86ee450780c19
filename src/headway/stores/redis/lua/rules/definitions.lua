-- Written by `make lua` from headway.stores.ledger.verbs.define: change that.
-- Define: declare, change or reset gates, lanes, entries, closings and tokens.
-- needs: base.codec, base.python, base.run, base.time, engine.gate_book, engine.gate_templates,
-- needs: engine.new_jobs, engine.tokens, rules.gate_changes, rules.moves, rules.pool,
-- needs: tables.declared, tables.jobs, tables.lanes

local Definitions = {}

local FOREVER = 253402300800000

function Definitions.declare_gate(step, item, _request)
  local changed = GateChanges.declare_gate(step, item.spec)
  return changed and { 'declare gate', item.spec.name, item.spec.kind } or nil
end

function Definitions.set_gate(step, item, _request)
  local before = Definitions.values(step, item.name)
  GateChanges.set_gate(step, item)
  local value
  if Python.same(Definitions.values(step, item.name), before) then
    value = nil
  else
    value = { 'set gate', item.name, '' }
  end
  return value
end

function Definitions.reset_gate(step, item, _request)
  local before = Definitions.values(step, item.name)
  GateChanges.reset_gate(step, item.name)
  local value
  if Python.same(Definitions.values(step, item.name), before) then
    value = nil
  else
    value = { 'reset gate', item.name, '' }
  end
  return value
end

function Definitions.values(step, name)
  local values = { declared = GateBook.template(step.book, name), capacities = {} }
  local names = { name }
  if values.declared ~= nil then
    local members = values.declared.spec.members
    local value = { name }
    local list = {}
    for at, each in ipairs(members) do
      local member, _ = each[1], each[2]
      list[at] = Pool.member_gate(name, member)
    end
    names = Python.joined(value, list)
  end
  for _, one in ipairs(names) do
    local row = GateBook.find(step.book, one)
    if row ~= nil and row.capacity ~= nil then
      values.capacities[one] = row.capacity
    end
  end
  return values
end

function Definitions.close(step, item, request)
  if GateBook.template(step.book, item.name) ~= nil and string.find(item.name, '{', 1, true) ~= nil then
    local message = Run.quoted(item.name) .. ' is a template, not a single gate'
    Run.refuse('InvalidValue', message, 'close one of them by its resolved name, or pause the lane or kind')
  end
  local row = GateBook.find(step.book, item.name)
  local until_ = item.until_at == nil and FOREVER or item.until_at
  local author, reason = request.author, item.reason ~= '' and item.reason or request.reason
  if row ~= nil then
    local same = row.closed_by == author and row.closed_reason == reason
    if same and row.closed_until == until_ then
      return nil
    end
    -- An operator's closing replaces the former one, whether it is shorter or longer.
    GateBook.change(step.book, item.name, row.template, row.pool).closed_until = nil
  end
  Moves.close_gate(step, item.name, until_, author, reason)
  return { 'close', item.name, item.until_at == nil and '' or Codec.digits(item.until_at) }
end

function Definitions.open(step, item, _request)
  return GateChanges.open_gate(step, item.name) and { 'open', item.name, '' } or nil
end

function Definitions.declare_lane(step, item, _request)
  local row = Definitions.lane(step, item.spec.name)
  if Python.same(row.spec, item.spec) then
    return nil
  end
  row.spec = item.spec
  Definitions.save_lane(step, row)
  return { 'declare lane', item.spec.name, '' }
end

function Definitions.set_lane(step, item, _request)
  local row = Definitions.lane(step, item.spec.name)
  if Python.same(row.override, item.spec) then
    return nil
  end
  row.override = item.spec
  Definitions.save_lane(step, row)
  return { 'set lane', item.spec.name, '' }
end

function Definitions.reset_lane(step, item, _request)
  local row = Lanes.load({ item.name })[item.name]
  if row == nil or row.override == nil then
    return nil
  end
  row.override = nil
  Definitions.save_lane(step, row)
  return { 'reset lane', item.name, '' }
end

function Definitions.lane(step, name)
  Lanes.ensure({ name })
  return Lanes.load({ name })[name]
end

function Definitions.save_lane(step, row)
  if Lanes.current(row).concurrency ~= nil then
    GateTemplates.track_implicit(step, 'lane:' .. row.name)
  end
  Lanes.save(row)
end

function Definitions.declare_entry(step, item, _request)
  local spec = item.spec
  local row = Declared.entry(spec.name)
  if row == nil then
    row = {
      name = spec.name,
      spec = spec,
      revision = 1,
      folded = 0,
      first_seen_at = Time.now,
    }
    Declared.save_entry(row)
    return { 'declare entry', spec.name, '' }
  end
  if row.spec ~= nil then
    -- Only the first declaration sets `enabled`; after that the operator decides.
    local job = NewJobs.with_id(spec.job, row.spec.job.id)
    spec = Python.replace(spec, { enabled = row.spec.enabled, job = job })
    if Python.same(spec, row.spec) then
      return nil
    end
  end
  Definitions.drop_fires(step, row)
  -- A new schedule has missed no fires; the same one still makes up for an outage.
  local same = row.spec ~= nil and Declared.same_schedule(row.spec, spec)
  local value
  if same then
    value = nil
  else
    value = Time.now
  end
  row.ahead_until = value
  if not same and row.last_fired ~= nil then
    -- The new schedule may fire before the next fire of the former one.
    row.last_fired = math.min(row.last_fired, Time.now)
  end
  row.spec = spec
  row.revision = row.revision + 1
  Declared.save_entry(row)
  return { 'declare entry', spec.name, 'revision ' .. Codec.digits(row.revision) }
end

function Definitions.enable_entry(step, item, _request)
  local row = Definitions.entry(step, item.name)
  if row.spec.enabled == item.enabled then
    return nil
  end
  if not item.enabled then
    Definitions.drop_fires(step, row)
  end
  row.spec = Python.replace(row.spec, { enabled = item.enabled })
  row.revision = row.revision + 1
  row.ahead_until = nil
  -- Fires from the time it was disabled do not count as missed.
  row.last_fired = math.max(row.last_fired or 0, Time.now)
  Declared.save_entry(row)
  return { item.enabled and 'enable' or 'disable', item.name, '' }
end

function Definitions.remove_entry(step, item, _request)
  local row = Definitions.entry(step, item.name)
  Definitions.drop_fires(step, row)
  row.spec, row.ahead_until = nil, nil
  row.revision = row.revision + 1
  Declared.save_entry(row)
  return { 'remove entry', item.name, '' }
end

function Definitions.entry(step, name)
  local row = Declared.entry(name)
  if row == nil or row.spec == nil then
    local message = 'no timetable entry ' .. Run.quoted(name)
    Run.refuse('UnknownEntry', message, '`headway timetable` lists them')
  end
  return row
end

-- Cancel fires that are not due yet; the next revision may insert them again.
function Definitions.drop_fires(step, row)
  local moments = {}
  for _, job in ipairs(Jobs.of_entry(row.name)) do
    -- A job that has run waits for its retry: its fire has happened.
    if job.state == 'scheduled' and job.run == 0 then
      -- Not counted as folded: no earlier fire replaces it.
      Moves.end_(step, job, 'cancelled', '', 'the entry changed', '')
      table.insert(moments, job.fired_at or 0)
    end
  end
  if #moments > 0 and row.last_fired ~= nil then
    local minimum
    for _, one in ipairs(moments) do
      minimum = minimum and math.min(minimum, one) or one
    end
    row.last_fired = math.min(row.last_fired, minimum - 1)
  end
end

Definitions.HANDLERS = {
  DeclareGate = Definitions.declare_gate,
  SetGate = Definitions.set_gate,
  ResetGate = Definitions.reset_gate,
  CloseGate = Definitions.close,
  OpenGate = Definitions.open,
  DeclareLane = Definitions.declare_lane,
  SetLane = Definitions.set_lane,
  ResetLane = Definitions.reset_lane,
  DeclareEntry = Definitions.declare_entry,
  EnableEntry = Definitions.enable_entry,
  RemoveEntry = Definitions.remove_entry,
  SetToken = Tokens.set,
  RevokeToken = Tokens.revoke,
  NoteUse = Tokens.note_use,
}
