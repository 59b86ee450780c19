-- Map resolved names to declared gates.
-- python: stores.ledger.gate_cache.GateCache.refuse_members_name, core.gates.spec.is_implicit
-- python: core.gates.spec.implicit_gates
-- needs: base.codec, base.run, tables.gates, rules.pool

local GateNames = {}

local PLACEHOLDER = '{[A-Za-z_][A-Za-z0-9_]*}'
-- One character or more; starts with a first byte of UTF-8, so that no character is split.
local ANY = '[^\128-\191].*'
local IMPLICIT = { 'lane:', 'tenant:', 'kind:' }

-- Return whether a name is one of the four implicit gates.
function GateNames.is_implicit(gate)
  if gate == 'all' then
    return true
  end
  for _, start in ipairs(IMPLICIT) do
    if string.sub(gate, 1, #start) == start then
      return true
    end
  end
  return false
end

-- Return the names of the four gates that always apply to a job.
function GateNames.implicit_gates(lane, tenant, kind)
  return { 'all', 'lane:' .. lane, 'tenant:' .. tenant, 'kind:' .. kind }
end

-- Return how long permits of an implicit gate are held: a lane's concurrency counts handlers.
function GateNames.implicit_hold(gate)
  return string.sub(gate, 1, 5) == 'lane:' and 'run' or 'settled'
end

local patterns = {}

local function pattern_of(template)
  local known = patterns[template]
  if known == nil then
    local parts, from = { '^' }, 1
    while true do
      local first, last = string.find(template, PLACEHOLDER, from)
      local fixed = string.sub(template, from, (first or 0) - 1)
      parts[#parts + 1] = (string.gsub(fixed, '[%^%$%(%)%%%.%[%]%*%+%-%?]', '%%%0'))
      if first == nil then
        break
      end
      parts[#parts + 1] = ANY
      from = last + 1
    end
    parts[#parts + 1] = '$'
    known = table.concat(parts)
    patterns[template] = known
  end
  return known
end

local function matches(template, gate)
  if template == gate then
    return true
  end
  return string.find(template, '{', 1, true) ~= nil
    and string.find(gate, pattern_of(template)) ~= nil
end

-- Count the characters of a text in UTF-8.
function GateNames.characters(text)
  local _, count = string.gsub(text, '[^\128-\191]', '')
  return count
end

local function fixed_characters(template)
  return GateNames.characters((string.gsub(template, PLACEHOLDER, '')))
end

local function is_better(one, other)
  if other == nil or one.size ~= other.size then
    return other == nil or one.size > other.size
  end
  if one.template ~= other.template then
    return Codec.less(other.template, one.template)
  end
  return Codec.less(other.pool, one.pool)
end

-- Return the resolved name of the pool whose member the gate may be; nil if the name does not
-- match.
local function pool_of(gate, member)
  local ending = Pool.member_gate('', member)
  if #gate > #ending and string.sub(gate, -#ending) == ending then
    return string.sub(gate, 1, -#ending - 1)
  end
  return nil
end

local function best_member(best, template, spec, gate)
  -- The prefix rules out the members of nearly all other pools, of which there may be many.
  local fixed = string.match(template, '^[^{]*')
  if string.sub(gate, 1, #fixed) ~= fixed then
    return best
  end
  for _, one in ipairs(spec.members) do
    local pool = pool_of(gate, one[1])
    if pool ~= nil and matches(template, pool) then
      local size = GateNames.characters(template) + GateNames.characters(one[1])
      local found = { size = size, template = template, pool = pool }
      best = is_better(found, best) and found or best
    end
  end
  return best
end

local function refuse_member(pool, gate)
  if best_member(nil, pool.name, pool, gate) ~= nil then
    local message = 'the gate '
      .. Run.quoted(gate)
      .. ' has the same name as a member of the pool '
      .. Run.quoted(pool.name)
    Run.refuse('InvalidValue', message, 'rename one of the two')
  end
end

-- Refuse a gate with the name of a pool's member, because permits would be counted at both.
function GateNames.refuse_members_name(spec)
  for name, row in pairs(Gates.templates()) do
    if #spec.members > 0 then
      refuse_member(spec, name)
    end
    if #row.spec.members > 0 or row.override then
      refuse_member(row.spec, spec.name)
      refuse_member(Gates.current(row), spec.name)
    end
  end
end

-- Return whether a resolved name belongs to this template, and not to that of its use.
local function names_first(template, use)
  local one = { size = fixed_characters(template), template = template, pool = '' }
  local own = { size = fixed_characters(use.template), template = use.template, pool = '' }
  return template == use.name or is_better(one, own)
end

-- Return the times of an Hours as text. zone: of hours whose zone is a template, or nil.
local function times_of(spec, zone)
  local hours = spec.hours
  local where = string.find(hours.tz, '{', 1, true) and zone or hours.tz
  return cmsgpack.pack({ hours.spans, hours.days, hours.exceptions, where })
end

local function count_apart(one, other, zone)
  if one.kind ~= other.kind or one.shared ~= other.shared or one.per_ms ~= other.per_ms then
    return true
  end
  return one.hours ~= nil and times_of(one, zone) ~= times_of(other, zone)
end

-- Return whether two templates may resolve to one name, as far as their beginnings show.
local function may_share_name(template, other)
  local start, begin = string.match(template, '^[^{]*'), string.match(other, '^[^{]*')
  local size = math.min(#start, #begin)
  return string.sub(start, 1, size) == string.sub(begin, 1, size)
end

local rivals = {}

-- Return the gates with which a declared gate may share a name although they count apart. They are
-- few, whatever is declared, because most names begin with a word of their own.
local function rivals_of(template, spec)
  local found = rivals[template]
  if found == nil then
    found = {}
    rivals[template] = found
    for name, row in pairs(Gates.templates()) do
      local other = Gates.current(row)
      local is_apart = #other.members > 0 or count_apart(other, spec)
      if is_apart and may_share_name(name, template) then
        found[#found + 1] = other
      end
    end
  end
  return found
end

-- Return whether a candidate may give a gate the name of another gate, or of its job's.
--   spec: of its template; gates: of the job, this one among them.
function GateNames.may_share_name(use, spec, gates)
  if #rivals_of(use.template, spec) > 0 or may_share_name(use.name, 'all') then
    return true
  end
  for _, start in ipairs(IMPLICIT) do
    if may_share_name(use.name, start) then
      return true
    end
  end
  for _, other in ipairs(gates) do
    if other ~= use and may_share_name(use.name, other.name) then
      return true
    end
  end
  return false
end

-- Refuse a templated gate whose resolved name is that of another gate: both would count in one.
-- Gates of the same kind may share a name, and then share its permits; rates with the same window,
-- their starts; hours that are the same, their times.
--   spec: of its template.
function GateNames.refuse_others_name(use, spec)
  if use.name == use.template then
    return
  end
  local template = Run.quoted(use.template)
  local named = 'the gate ' .. Run.quoted(use.name) .. ', named by ' .. template .. ','
  if GateNames.is_implicit(use.name) then
    local hint = 'begin the name of ' .. template .. ' with a fixed word'
    Run.refuse('InvalidValue', named .. ' is an implicit gate', hint)
  end
  local slash = string.find(use.name, '/', 1, true)
  for _, other in ipairs(rivals_of(use.template, spec)) do
    local name = other.name
    if slash then
      refuse_member(other, use.name)
    end
    if count_apart(other, spec, use.zone) and matches(name, use.name) and names_first(name, use) then
      local message = named .. ' has the same name as the ' .. other.kind .. ' '
      Run.refuse('InvalidValue', message .. Run.quoted(name), 'rename one of the two')
    end
  end
end

-- Return the declared gate and the pool of a resolved name.
--   templates: all declared gates, by name.
--   gate: resolved, or the name of a pool's member (`pool/member`).
-- Return {template, pool}: "" and "" for an implicit gate. Of several matching templates, choose
-- the one with the most fixed characters. Refuse with UnknownGate if none matches.
function GateNames.place_of(templates, gate)
  if GateNames.is_implicit(gate) then
    return { template = '', pool = '' }
  end
  if templates[gate] ~= nil then
    return { template = gate, pool = '' }
  end
  local best
  for name, row in pairs(templates) do
    local spec = Gates.current(row)
    best = best_member(best, name, spec, gate)
    if matches(name, gate) then
      local found = { size = fixed_characters(name), template = name, pool = '' }
      best = is_better(found, best) and found or best
    end
  end
  if best == nil then
    local message = 'the gate ' .. Run.quoted(gate) .. ' is not declared'
    Run.refuse('UnknownGate', message, '`headway gates` lists the declared gates')
  end
  return { template = best.template, pool = best.pool }
end
