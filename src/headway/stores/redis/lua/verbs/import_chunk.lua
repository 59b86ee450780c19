-- Import: write a chunk that another store exported.
-- needs: base.time, base.write, tables.counts, tables.dedupe, tables.declared
-- needs: tables.gates, tables.jobs, tables.lanes, tables.permits, tables.signals, tables.starts
-- needs: tables.trail
local ImportChunk = {}

local PARTS = {}

function PARTS.templates(rows)
  for _, row in ipairs(rows) do
    Gates.save_template(row)
  end
  if #rows > 0 then
    Declared.bump_revision()
  end
end

function PARTS.gates(rows)
  local gates = {}
  for place, one in ipairs(rows) do
    gates[place] = one.row
    local moments = {}
    for _, start in ipairs(one.starts) do
      moments[start[1]] = start[2]
    end
    Starts.put(one.row.name, moments)
  end
  Gates.save(gates)
end

function PARTS.lanes(rows)
  for _, one in ipairs(rows) do
    Lanes.save(one.row)
    Lanes.save_tenant_starts(one.row.name, one.starts)
  end
end

function PARTS.entries(rows)
  for _, row in ipairs(rows) do
    Declared.save_entry(row)
  end
end

function PARTS.tokens(rows)
  Declared.save_tokens(rows)
  if #rows > 0 then
    Declared.bump_revision()
  end
end

-- Insert every job as scheduled, then write it in its own state.
local function make(new)
  local rows, states = {}, {}
  for place, one in ipairs(new) do
    local row, flow = one.row, one.flow
    local key = { lane = flow[1], tenant = flow[2], kind = flow[3], shared = flow[4] }
    row.flow, row.policy = Jobs.flow_number(key), Jobs.policy_number(one.policy)
    states[place], row.state = row.state, 'scheduled'
    rows[place] = row
  end
  Jobs.insert(rows)
  for place, row in ipairs(rows) do
    row.state = states[place]
    Counts.move(row.lane, nil, row.state, 1)
  end
  Jobs.save(rows)
end

-- The names of fields that are sent by position.
local PERMIT = { 'gate', 'job', 'run', 'pool', 'amount', 'since', 'hold' }
local KEY = { 'tenant', 'key', 'job', 'body', 'until_at' }
local LINE = { 'seq', 'at', 'author', 'reason', 'verb', 'target', 'detail' }

local function by_names(names, kept)
  local row = {}
  for place, name in ipairs(names) do
    row[name] = kept[place]
  end
  return row
end

-- Add what belongs to jobs: ended runs, permits and keys.
local function add_belongings(new)
  local runs, permits, keys = {}, {}, {}
  for _, one in ipairs(new) do
    for _, run in ipairs(one.runs) do
      runs[#runs + 1] = run
    end
    for _, kept in ipairs(one.permits) do
      permits[#permits + 1] = by_names(PERMIT, kept)
    end
    if one.key ~= nil then
      keys[#keys + 1] = by_names(KEY, one.key)
    end
  end
  Jobs.add_runs(runs)
  Permits.add(permits)
  Dedupe.save(keys)
end

function PARTS.jobs(rows)
  local ids, new = {}, {}
  for place, one in ipairs(rows) do
    ids[place] = one.row.id
  end
  local there = Jobs.known(ids)
  for _, one in ipairs(rows) do
    if not there[one.row.id] then
      new[#new + 1] = one
    end
  end
  make(new)
  add_belongings(new)
end

function PARTS.known(rows)
  for _, row in ipairs(rows) do
    Signals.make_known(row.key, row.job, row.run)
  end
end

function PARTS.events(rows)
  for _, row in ipairs(rows) do
    Signals.save(row)
  end
end

local function is_same_line(one, other)
  for name, value in pairs(other) do
    if one[name] ~= value then
      return false
    end
  end
  return true
end

function PARTS.trail(rows)
  local lines, newest = {}, Trail.page(nil, nil, 1)[1]
  for place, kept in ipairs(rows) do
    lines[place] = by_names(LINE, kept)
    lines[place].seq = nil
  end
  if #lines > 0 and not (newest and is_same_line(newest, lines[#lines])) then
    Trail.add(lines)
  end
end

function PARTS.totals(rows)
  local standing = Counts.totals()
  for _, row in ipairs(rows) do
    Counts.happened(row.what, row.n - (standing[row.what] or 0))
  end
end

-- Write the rows of a part, which the client has validated. An existing job stays unchanged, with
-- everything that belongs to it.
function ImportChunk.run(request)
  Write.guarded()
  Time.keep()
  PARTS[request.part](request.rows)
  return true
end
