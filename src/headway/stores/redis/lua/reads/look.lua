-- What a read looks at: rows of one snapshot, each collected once, told table by table.
--
-- A read only collects; the views are made of the rows by the client. So each read looks at every
-- row that its view may ask for, and at a bounded number of them.
-- needs: base.time, tables.jobs, tables.gates, tables.permits, tables.starts, tables.lanes
-- needs: tables.signals, tables.trail
local Look = {}

-- Begins a look; `told` is what the client gets.
function Look.new()
  return { told = { now = Time.now }, seen = {} }
end

local function list(look, name)
  local found = look.told[name]
  if found == nil then
    found = {}
    look.told[name] = found
  end
  return found
end

-- Whether this is the first look at something of a table.
local function is_first(look, what, key)
  local seen = look.seen[what]
  if seen == nil then
    seen = {}
    look.seen[what] = seen
  end
  if seen[key] then
    return false
  end
  seen[key] = true
  return true
end

-- Tells rows of jobs, in this order, with their flows and policies.
function Look.jobs(look, rows, what)
  local found = list(look, what or 'jobs')
  for _, row in ipairs(rows) do
    found[#found + 1] = row
    Look.flow(look, row.flow)
    if is_first(look, 'policies', row.policy) then
      local policies = list(look, 'policies')
      policies[#policies + 1] = { row.policy, Jobs.policy(row.policy) }
    end
  end
end

-- The flow of a number, told.
function Look.flow(look, number)
  local key = Jobs.flow(number)
  if is_first(look, 'flows', number) then
    local flows = list(look, 'flows')
    flows[#flows + 1] = { number, key }
  end
  return key
end

-- Tells the runs of jobs that ended.
function Look.runs(look, ids)
  local runs = list(look, 'runs')
  for id, ended in pairs(Jobs.runs(ids)) do
    runs[#runs + 1] = { id, ended }
  end
end

-- Tells the keys that the runs of jobs are known as.
function Look.known(look, ids)
  look.told.known = Signals.known_as(ids)
end

-- Tells the last lines of the trail about a target, newest first.
function Look.notes(look, target, limit)
  local notes = list(look, 'notes')
  notes[#notes + 1] = { target, Trail.page(target, nil, limit) }
end

-- What holds of a declared gate now; nil if it is none. Told.
function Look.template(look, name)
  local row = Gates.templates()[name]
  if row == nil then
    return nil
  end
  if is_first(look, 'templates', name) then
    local templates = list(look, 'templates')
    templates[#templates + 1] = row
  end
  return row.override or row.spec
end

-- Tells all that is declared.
function Look.templates(look)
  for name in pairs(Gates.templates()) do
    Look.template(look, name)
  end
end

-- When the start leaves the window whose leaving makes room for one more; false if none does.
local function leaves(name, after_at, total, most)
  local excess = total + 1 - most
  if excess <= 0 or most < 1 then
    return false
  end
  for _, start in ipairs(Starts.oldest(name, after_at, excess)) do
    excess = excess - start[2]
    if excess <= 0 then
      return start[1]
    end
  end
  return false
end

local function look_at_starts(look, row)
  local spec = Look.template(look, row.template)
  if spec == nil or spec.kind ~= 'rate' or row.pool ~= '' then
    return
  end
  local after_at = Time.now - (spec.per_ms or 0)
  local total = Starts.total(row.name, after_at)
  local most = row.capacity or spec.limit or 0
  local starts = list(look, 'starts')
  starts[#starts + 1] = { row.name, total, leaves(row.name, after_at, total, most) }
end

-- Tells a gate's row, or that there is none; of a rate its starts.
function Look.gate(look, name)
  if not is_first(look, 'gates', name) then
    return
  end
  local row = Gates.load({ name })[name]
  local gates = list(look, 'gates')
  gates[#gates + 1] = { name, row or false }
  if row ~= nil then
    look_at_starts(look, row)
  end
end

-- Tells a lane's row, if it has one.
function Look.lane(look, name)
  if not is_first(look, 'lanes', name) then
    return
  end
  local row = Lanes.load({ name })[name]
  if row ~= nil then
    local lanes = list(look, 'lanes')
    lanes[#lanes + 1] = row
  end
end

-- Tells the gates that say whether a flow can run: the four implicit ones and the shared ones.
function Look.gates_of(look, flow)
  Look.gate(look, 'all')
  Look.gate(look, 'lane:' .. flow.lane)
  Look.gate(look, 'tenant:' .. flow.tenant)
  Look.gate(look, 'kind:' .. flow.kind)
  Look.lane(look, flow.lane)
  for _, use in ipairs(flow.shared) do
    Look.gate(look, use.name)
    local spec = Look.template(look, use.template)
    if spec ~= nil and spec.kind == 'pool' then
      for _, member in ipairs(spec.members) do
        Look.gate(look, use.name .. '/' .. member[1])
      end
    end
  end
end

local function tell_holders(look, name, limits)
  if not is_first(look, 'permits', name) then
    return
  end
  local count = Permits.holders(name)
  local permits = list(look, 'permits')
  permits[#permits + 1] = { name, count, 0, Permits.at(name, limits.holders) }
end

-- Whether a pool may be declared under a template: what comes before and behind its placeholders.
local function may_match(template, name)
  local first, last = template:find('{', 1, true), template:match('.*}()')
  if first == nil or last == nil then
    return template == name
  end
  local before, behind = template:sub(1, first - 1), template:sub(last)
  return name:sub(1, #before) == before and (behind == '' or name:sub(-#behind) == behind)
end

-- Tells a gate as it is shown: its row, first holders, number of parked jobs, and of a pool all of
-- these of its members.
--
-- `limits`: how many `holders` to tell, up to how many `parked` to count.
function Look.state(look, name, limits)
  Look.gate(look, name)
  tell_holders(look, name, limits)
  if is_first(look, 'parked', name) then
    local parked = list(look, 'parked')
    parked[#parked + 1] = { name, Jobs.parked_count(name, limits.parked) }
  end
  if name:sub(1, 5) == 'lane:' then
    Look.lane(look, name:sub(6))
  end
  for template, row in pairs(Gates.templates()) do
    local spec = row.override or row.spec
    if spec.kind == 'pool' and may_match(template, name) then
      for _, member in ipairs(spec.members) do
        Look.gate(look, name .. '/' .. member[1])
        tell_holders(look, name .. '/' .. member[1], limits)
      end
    end
  end
end
