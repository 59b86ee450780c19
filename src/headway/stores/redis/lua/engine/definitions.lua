-- One item of a definition: a gate, lane, entry, closing or token declared, changed or reset.
-- needs: base.run, base.codec, base.time, base.python, tables.declared, tables.gates
-- needs: tables.lanes, rules.pool, engine.entry_changes, engine.gate_book, engine.gate_changes
-- needs: engine.states, engine.step

local Definitions = {}

local MAX_TOKENS = 10000

-- Makes a token, or replaces what it is; when it was made and used stays. Returns what goes on the
-- trail, nil when nothing changed.
function Definitions.set_token(item, request)
  local row = Declared.tokens({ item.spec.id })[1]
  if row == nil then
    row = { created_at = Time.now, created_by = request.author }
  elseif Python.same(row.spec, item.spec) then
    return nil
  end
  row.spec = item.spec
  Declared.save_tokens({ row })
  return 'set token', item.spec.id, item.said
end

-- Refuses the whole definition if there are now more tokens than there may be.
function Definitions.check_token_number()
  if Declared.token_count() > MAX_TOKENS then
    Run.refuse(
      'InvalidValue',
      'there would be more than ' .. Codec.digits(MAX_TOKENS) .. ' tokens',
      'revoke tokens that are not used'
    )
  end
end

-- Forgets a token. Returns what goes on the trail, nil when nothing changed.
function Definitions.revoke_token(id)
  local row = Declared.tokens({ id })[1]
  if row == nil then
    return nil
  end
  Declared.remove_token(id)
  return 'revoke token', id, row.spec.name
end

-- Notes when tokens were used, where that is later than what was noted.
--   used: {id, moment} each, an id once.
function Definitions.note_use(used)
  local ids, latest, later = {}, {}, {}
  for place, one in ipairs(used) do
    ids[place], latest[one[1]] = one[1], one[2]
  end
  for _, row in ipairs(Declared.tokens(ids)) do
    local at = latest[row.spec.id]
    if row.used_at == nil or row.used_at < at then
      row.used_at = at
      later[#later + 1] = row
    end
  end
  Declared.save_tokens(later)
end

local DO = {}

function DO.DeclareGate(step, item)
  if GateChanges.declare_gate(step, item.spec) then
    return 'declare gate', item.spec.name, item.spec.kind
  end
end

-- What an operator and code say of a gate; the same after as before when nothing changed.
local function values(step, name)
  local declared = Gates.templates()[name]
  local row = GateBook.find(step.book, name)
  local said = {
    spec = declared and declared.spec,
    override = declared and declared.override,
    capacity = row and row.capacity,
    members = {},
  }
  for place, member in ipairs(declared and declared.spec.members or {}) do
    local own = GateBook.find(step.book, Pool.member_gate(name, member[1]))
    said.members[place] = own and own.capacity or false
  end
  return said
end

function DO.SetGate(step, item)
  local before = values(step, item.name)
  GateChanges.set_gate(step, item)
  if not Python.same(values(step, item.name), before) then
    return 'set gate', item.name, item.said
  end
end

function DO.ResetGate(step, item)
  local before = values(step, item.name)
  GateChanges.reset_gate(step, item.name)
  if not Python.same(values(step, item.name), before) then
    return 'reset gate', item.name, ''
  end
end

local function check_closable(step, name)
  if Gates.templates()[name] ~= nil and string.find(name, '{', 1, true) then
    Run.refuse(
      'InvalidValue',
      Run.quoted(name) .. ' is a template; many gates have its name',
      'close one of them by its resolved name, or pause the lane or kind'
    )
  end
end

function DO.CloseGate(step, item, request)
  check_closable(step, item.name)
  local row = GateBook.find(step.book, item.name)
  local until_at = item.until_at or States.FOREVER
  local author, reason = request.author, item.reason
  if reason == nil or reason == '' then
    reason = request.reason
  end
  if row ~= nil then
    if row.closed_until == until_at and row.closed_by == author and row.closed_reason == reason then
      return nil
    end
    -- An operator's closing replaces the former one, whether shorter or longer.
    GateBook.change(step.book, item.name, row.template, row.pool).closed_until = nil
  end
  Step.close_gate(step, item.name, until_at, author, reason)
  return 'close', item.name, item.until_at and Codec.digits(item.until_at) or ''
end

function DO.OpenGate(step, item)
  if GateChanges.open_gate(step, item.name) then
    return 'open', item.name, ''
  end
end

local function lane(name)
  Lanes.ensure({ name })
  return Lanes.load({ name })[name]
end

local function save_lane(step, row)
  if Lanes.current(row).concurrency ~= nil then
    GateChanges.track(step, 'lane:' .. row.name)
  end
  Lanes.save(row)
end

function DO.DeclareLane(step, item)
  local row = lane(item.spec.name)
  if row.spec ~= nil and Python.same(row.spec, item.spec) then
    return nil
  end
  row.spec = item.spec
  save_lane(step, row)
  return 'declare lane', item.spec.name, ''
end

function DO.SetLane(step, item)
  local row = lane(item.spec.name)
  if row.override ~= nil and Python.same(row.override, item.spec) then
    return nil
  end
  row.override = item.spec
  save_lane(step, row)
  return 'set lane', item.spec.name, ''
end

function DO.ResetLane(step, item)
  local row = Lanes.load({ item.name })[item.name]
  if row == nil or row.override == nil then
    return nil
  end
  row.override = nil
  save_lane(step, row)
  return 'reset lane', item.name, ''
end

function DO.DeclareEntry(step, item)
  return EntryChanges.declare(step, item.spec)
end

function DO.EnableEntry(step, item)
  return EntryChanges.enable(step, item.name, item.enabled)
end

function DO.RemoveEntry(step, item)
  return EntryChanges.remove(step, item.name)
end

function DO.SetToken(_, item, request)
  return Definitions.set_token(item, request)
end

function DO.RevokeToken(_, item)
  return Definitions.revoke_token(item.id)
end

function DO.NoteUse(_, item)
  Definitions.note_use(item.used)
end

-- Does one item in the step. Returns what goes on the trail: verb, target, detail; nil when
-- nothing changed.
function Definitions.define(step, item, request)
  return DO[item.type](step, item, request)
end
