-- The rows of one snapshot, each collected once, by table.
--
-- A read only collects rows; the client builds the views from them. So each read collects every row
-- that its view may need, and a bounded number of them.
-- needs: base.time, tables.jobs, tables.gates, tables.permits, tables.starts, tables.lanes
-- needs: tables.signals, tables.trail, engine.gate_kinds
local Snapshot = {}

-- Start a snapshot; `reply` is sent to the client.
function Snapshot.new()
  return { reply = { now = Time.now }, seen = {} }
end

local function list(snapshot, name)
  local found = snapshot.reply[name]
  if found == nil then
    found = {}
    snapshot.reply[name] = found
  end
  return found
end

-- Return whether this is the first access to a key of a table.
local function is_first(snapshot, what, key)
  local seen = snapshot.seen[what]
  if seen == nil then
    seen = {}
    snapshot.seen[what] = seen
  end
  if seen[key] then
    return false
  end
  seen[key] = true
  return true
end

-- Add rows of jobs, in this order, with their flows and policies.
function Snapshot.jobs(snapshot, rows, what)
  local found = list(snapshot, what or 'jobs')
  for _, row in ipairs(rows) do
    found[#found + 1] = row
    Snapshot.flow(snapshot, row.flow)
    if is_first(snapshot, 'policies', row.policy) then
      local policies = list(snapshot, 'policies')
      policies[#policies + 1] = { row.policy, Jobs.policy(row.policy) }
    end
  end
end

-- Add a flow by its number, and return it.
function Snapshot.flow(snapshot, number)
  local key = Jobs.flow(number)
  if is_first(snapshot, 'flows', number) then
    local flows = list(snapshot, 'flows')
    flows[#flows + 1] = { number, key }
  end
  return key
end

-- Add the ended runs of jobs.
function Snapshot.runs(snapshot, ids)
  local runs = list(snapshot, 'runs')
  for id, ended in pairs(Jobs.runs(ids)) do
    runs[#runs + 1] = { id, ended }
  end
end

-- Add the keys that the runs of jobs are known by.
function Snapshot.known(snapshot, ids)
  snapshot.reply.known = Signals.known_as(ids)
end

-- Add the last lines of the trail about a target, newest first.
function Snapshot.notes(snapshot, target, limit)
  local notes = list(snapshot, 'notes')
  notes[#notes + 1] = { target, Trail.page(target, nil, limit) }
end

-- Add a declared gate, and return its current spec; nil if it is not declared.
function Snapshot.template(snapshot, name)
  local row = Gates.templates()[name]
  if row == nil then
    return nil
  end
  if is_first(snapshot, 'templates', name) then
    local templates = list(snapshot, 'templates')
    templates[#templates + 1] = row
  end
  return row.override or row.spec
end

-- Add all declared gates.
function Snapshot.templates(snapshot)
  for name in pairs(Gates.templates()) do
    Snapshot.template(snapshot, name)
  end
end

-- Return the start that has to leave the window to make room for one more; false for none.
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

local function add_starts(snapshot, row)
  local spec = Snapshot.template(snapshot, row.template)
  if spec == nil or not GateKinds.of(spec.kind).counts_starts or row.pool ~= '' then
    return
  end
  local after_at = Time.now - (spec.per_ms or 0)
  local total = Starts.total(row.name, after_at)
  local most = row.capacity or spec.limit or 0
  local starts = list(snapshot, 'starts')
  starts[#starts + 1] = { row.name, total, leaves(row.name, after_at, total, most) }
end

-- Add a gate's row, or that it has none; for a rate also its starts.
function Snapshot.gate(snapshot, name)
  if not is_first(snapshot, 'gates', name) then
    return
  end
  local row = Gates.load({ name })[name]
  local gates = list(snapshot, 'gates')
  gates[#gates + 1] = { name, row or false }
  if row ~= nil then
    add_starts(snapshot, row)
  end
end

-- Add a lane's row, if it has one.
function Snapshot.lane(snapshot, name)
  if not is_first(snapshot, 'lanes', name) then
    return
  end
  local row = Lanes.load({ name })[name]
  if row ~= nil then
    local lanes = list(snapshot, 'lanes')
    lanes[#lanes + 1] = row
  end
end

-- Add the gates that decide whether a flow can run: the four implicit ones and the shared ones.
function Snapshot.gates_of(snapshot, flow)
  Snapshot.gate(snapshot, 'all')
  Snapshot.gate(snapshot, 'lane:' .. flow.lane)
  Snapshot.gate(snapshot, 'tenant:' .. flow.tenant)
  Snapshot.gate(snapshot, 'kind:' .. flow.kind)
  Snapshot.lane(snapshot, flow.lane)
  for _, use in ipairs(flow.shared) do
    Snapshot.gate(snapshot, use.name)
    local spec = Snapshot.template(snapshot, use.template)
    for _, member in ipairs(spec and spec.members or {}) do
      Snapshot.gate(snapshot, use.name .. '/' .. member[1])
    end
  end
end

local function add_holders(snapshot, name, limits)
  if not is_first(snapshot, 'permits', name) then
    return
  end
  local count = Permits.holders(name)
  local permits = list(snapshot, 'permits')
  permits[#permits + 1] = { name, count, 0, Permits.at(name, limits.holders) }
end

-- Return whether a name may match a template, by the text before and after its placeholders.
local function may_match(template, name)
  local first, last = template:find('{', 1, true), template:match('.*}()')
  if first == nil or last == nil then
    return template == name
  end
  local before, behind = template:sub(1, first - 1), template:sub(last)
  return name:sub(1, #before) == before and (behind == '' or name:sub(-#behind) == behind)
end

-- Add a gate's state: its row, first holders, number of parked jobs, and for a pool the rows and
-- holders of its members.
--
-- `limits`: number of `holders` to add, and up to how many `parked` jobs to count.
function Snapshot.state(snapshot, name, limits)
  Snapshot.gate(snapshot, name)
  add_holders(snapshot, name, limits)
  if is_first(snapshot, 'parked', name) then
    local parked = list(snapshot, 'parked')
    parked[#parked + 1] = { name, Jobs.parked_count(name, limits.parked) }
  end
  if name:sub(1, 5) == 'lane:' then
    Snapshot.lane(snapshot, name:sub(6))
  end
  for template, row in pairs(Gates.templates()) do
    local spec = row.override or row.spec
    if #spec.members > 0 and may_match(template, name) then
      for _, member in ipairs(spec.members) do
        Snapshot.gate(snapshot, name .. '/' .. member[1])
        add_holders(snapshot, name .. '/' .. member[1], limits)
      end
    end
  end
end
