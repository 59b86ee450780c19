-- Implicit gates that come to be capped: those who run already count there too.
-- needs: base.time, tables.jobs, tables.permits, engine.gate_book, engine.gate_names
local Implicit = {}

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
function Implicit.track(step, gate)
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
