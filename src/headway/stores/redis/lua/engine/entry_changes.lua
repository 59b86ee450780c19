-- Changes of the timetable: entries are declared, switched and removed.
-- needs: base.codec, base.run, base.time, base.python, tables.declared, tables.jobs
-- needs: engine.step
local EntryChanges = {}

-- Cancels fires that are not due yet; the next revision may insert them again.
local function drop_fires(step, row)
  local earliest
  for _, job in ipairs(Jobs.of_entry(row.name)) do
    -- One that has run is due to be tried again: its moment has fired.
    if job.state == 'scheduled' and job.run == 0 then
      -- Not counted as folded: no earlier fire stands for it.
      Step.finish(step, job, 'cancelled', '', { reason = 'the entry changed' })
      local moment = job.fired_at or 0
      earliest = earliest and math.min(earliest, moment) or moment
    end
  end
  if earliest ~= nil and row.last_fired ~= nil then
    row.last_fired = math.min(row.last_fired, earliest - 1)
  end
end

local function make(spec)
  Declared.save_entry({
    name = spec.name,
    spec = spec,
    revision = 1,
    folded = 0,
    first_seen_at = Time.now,
  })
  return 'declare entry', spec.name, ''
end

-- An entry has one of the three.
local function schedule_of(spec)
  return { cron = spec.cron, every = spec.every, at = spec.at }
end

-- Code says when an entry fires. Returns what goes on the trail, nil when nothing changed.
function EntryChanges.declare(step, spec)
  local row = Declared.entry(spec.name)
  if row == nil then
    return make(spec)
  end
  if row.spec ~= nil then
    -- Whether it is switched on is the operator's; code decides it only at first.
    local job = Python.replace(spec.job, { id = row.spec.job.id })
    spec = Python.replace(spec, { enabled = row.spec.enabled, job = job })
    if Python.same(spec, row.spec) then
      return nil
    end
  end
  drop_fires(step, row)
  -- A new schedule has missed nothing; the same one still makes up for an outage.
  local same = row.spec ~= nil and Python.same(schedule_of(spec), schedule_of(row.spec))
  row.ahead_until = nil
  if not same then
    row.ahead_until = Time.now
    -- Up to the next fire of the former schedule, too, the new one fires.
    if row.last_fired ~= nil then
      row.last_fired = math.min(row.last_fired, Time.now)
    end
  end
  row.spec = spec
  row.revision = row.revision + 1
  Declared.save_entry(row)
  return 'declare entry', spec.name, 'revision ' .. Codec.digits(row.revision)
end

local function entry(name)
  local row = Declared.entry(name)
  if row == nil or row.spec == nil then
    Run.refuse(
      'UnknownEntry',
      'no timetable entry ' .. Run.quoted(name),
      '`headway timetable` lists them'
    )
  end
  return row
end

-- An operator switches an entry on or off. Returns what goes on the trail, nil when nothing
-- changed.
function EntryChanges.enable(step, name, enabled)
  local row = entry(name)
  if row.spec.enabled == enabled then
    return nil
  end
  if not enabled then
    drop_fires(step, row)
  end
  row.spec = Python.replace(row.spec, { enabled = enabled })
  row.revision = row.revision + 1
  row.ahead_until = nil
  -- What would have fired while it was off is not missed.
  row.last_fired = math.max(row.last_fired or 0, Time.now)
  Declared.save_entry(row)
  return enabled and 'enable' or 'disable', name, ''
end

-- Forgets an entry but for the moment it fired last. Returns what goes on the trail.
function EntryChanges.remove(step, name)
  local row = entry(name)
  drop_fires(step, row)
  row.spec, row.ahead_until = nil, nil
  row.revision = row.revision + 1
  Declared.save_entry(row)
  return 'remove entry', name, ''
end
