-- The flow in which a job waits, by the gates that it uses.
-- python: stores.ledger.attempts.stage_of, stores.ledger.insert.make_ready
-- python: stores.ledger.insert.check_declared, stores.ledger.insert.check_turns
-- needs: base.codec, base.run, tables.jobs, engine.gate_cache, engine.gate_names, engine.horizon
-- needs: rules.cascade, rules.gate_limits, rules.job_limits, rules.name_limits

local FlowOf = {}

-- Validate a name, an amount and a hold.
local function check_words(use)
  local name, amount, most = use.name, use.amount, GateLimits.MAX_CAPACITY
  if name == '' then
    Run.refuse('InvalidValue', 'gate is empty', 'it needs at least one character')
  elseif #name > NameLimits.MAX_NAME and GateNames.characters(name) > NameLimits.MAX_NAME then
    local message = 'gate has ' .. GateNames.characters(name) .. ' characters'
    Run.refuse('InvalidValue', message, 'at most ' .. NameLimits.MAX_NAME)
  elseif string.find(name, '%z') then
    Run.refuse('InvalidValue', 'gate contains NUL', 'remove the NUL character')
  elseif type(amount) ~= 'number' or amount % 1 ~= 0 or amount < 1 or amount > most then
    local message = 'the amount of ' .. Run.quoted(name) .. ' is ' .. tostring(amount)
    Run.refuse('InvalidValue', message, 'from 1 to ' .. Codec.digits(most))
  elseif use.hold ~= 'settled' and use.hold ~= 'run' then
    local message = 'the hold of ' .. Run.quoted(name) .. ' is ' .. Run.quoted(use.hold)
    Run.refuse('InvalidValue', message, 'use settled or run')
  end
end

-- Validate that a job can use gates together.
local function check_together(kind, gates)
  local seen, shared = {}, 0
  for _, use in ipairs(gates) do
    if seen[use.name] then
      local message = 'job of kind ' .. Run.quoted(kind) .. ' names a gate twice: '
      local names = table.concat(Codec.fields(gates, 'name'), ', ')
      local hint = 'name it once, with the sum as amount'
      Run.refuse('InvalidValue', message .. names, hint)
    end
    seen[use.name] = true
  end
  for _, use in ipairs(gates) do
    check_words(use)
    shared = shared + (use.shared and 1 or 0)
  end
  if shared > JobLimits.MAX_SHARED_GATES then
    local message = 'job of kind ' .. Run.quoted(kind) .. ' asks for more than '
    message = message .. JobLimits.MAX_SHARED_GATES .. ' shared gates'
    Run.refuse('InvalidValue', message, 'let one gate stand for several')
  end
end

local function check_use(cache, kind, use)
  local spec = GateCache.spec(cache, use.template)
  if spec == nil then
    local message = 'a job of kind ' .. Run.quoted(kind) .. ' needs the gate '
    local hint = 'it is not declared; declare it before you enqueue'
    Run.refuse('UnknownGate', message .. Run.quoted(use.template), hint)
  end
  if spec.shared ~= use.shared then
    local one, other = 'keyed', 'shared'
    if spec.shared then
      one, other = other, one
    end
    local message = 'the gate ' .. Run.quoted(use.template) .. ' is ' .. one
    Run.refuse(
      'InvalidValue',
      message .. ', but the job uses it as ' .. other,
      'use it as it is declared'
    )
  end
  GateNames.refuse_others_name(use, spec)
end

-- Validate that a job of a kind can use gates now. Refuse with UnknownGate if one is not declared,
-- and with InvalidValue if they cannot be used together, or if one is declared as shared and used
-- as keyed or the reverse. Write nothing.
function FlowOf.check_declared(cache, kind, gates)
  check_together(kind, gates)
  for _, use in ipairs(gates) do
    check_use(cache, kind, use)
  end
end

-- Return the uses of hours that are new to the store.
function FlowOf.new_hours(cache, gates)
  local found = {}
  for _, use in ipairs(gates) do
    if Horizon.is_new(cache, use) then
      found[#found + 1] = use
    end
  end
  return found
end

-- Validate gates as `check_declared` does, and add new hours to the cache.
function FlowOf.make_ready(cache, kind, gates)
  FlowOf.check_declared(cache, kind, gates)
  Horizon.require(cache, FlowOf.new_hours(cache, gates))
  for _, use in ipairs(gates) do
    Horizon.ensure_hours(cache, use)
  end
end

-- Find or create the flow of a job whose gates were checked, and add new hours to the cache. Return
-- the flow's number and the keyed gates.
function FlowOf.make(cache, lane, tenant, kind, gates)
  local shared, keyed = {}, {}
  for _, use in ipairs(gates) do
    Horizon.ensure_hours(cache, use)
    local part = use.shared and shared or keyed
    part[#part + 1] = use
  end
  local key = { lane = lane, tenant = tenant, kind = kind, shared = shared }
  return Jobs.flow_number(key), keyed
end

local function longest_of(names)
  local longest = names[1]
  for _, name in ipairs(names) do
    if GateNames.characters(name) > GateNames.characters(longest) then
      longest = name
    end
  end
  return longest
end

-- Validate a cascade's gates as they are named in the turn of each candidate. Refuse with
-- InvalidValue if in a turn a name is not valid, two gates have the same one, or one has the name of
-- another gate.
function FlowOf.check_turns(cache, kind, gates, candidates)
  local is_templated, may_share = false, false
  for _, use in ipairs(gates) do
    if string.find(use.name, Cascade.CANDIDATE, 1, true) then
      local spec = GateCache.spec(cache, use.template)
      is_templated = true
      may_share = may_share or GateNames.may_share_name(use, spec, gates)
    end
  end
  if not is_templated or #candidates == 0 then
    return
  end
  if not may_share then
    -- Only the longest name may be refused.
    candidates = { longest_of(candidates) }
  end
  for _, candidate in ipairs(candidates) do
    local uses = {}
    for place, use in ipairs(gates) do
      uses[place] = Cascade.in_turn(use, candidate)
    end
    check_together(kind, uses)
    for _, use in ipairs(uses) do
      GateNames.refuse_others_name(use, GateCache.spec(cache, use.template))
    end
  end
end

-- Return a stage with its gates for a job. Refuse as `check_declared` and `check_turns` do.
--   candidates: those that a cascade gets with the stage; nil to keep its own.
function FlowOf.stage_of(step, row, name, gates, candidates)
  FlowOf.check_declared(step.cache, row.kind, gates)
  if candidates == nil and row.cascade ~= nil then
    -- An operator's retry asks all of them again.
    candidates = Cascade.reset(row.cascade).left
  end
  FlowOf.check_turns(step.cache, row.kind, gates, candidates or {})
  Horizon.require(step.cache, FlowOf.new_hours(step.cache, gates))
  local flow, keyed = FlowOf.make(step.cache, row.lane, row.tenant, row.kind, gates)
  return { name = name, flow = flow, keyed = keyed }
end
