-- Signals: an external event is applied once, kept for its run, or refused as late.
-- needs: base.time, base.write, tables.signals
-- needs: rules.apply_signal, engine.horizon, engine.step
local Signal = {}

-- The job and the run that a key names; nil if there is no such run.
local function find(step, key)
  local known = Signals.known(key)
  local job, run = known and known[1], known and known[2]
  if not job then
    -- A job's own reference is known from its claim on, before it hands over.
    local digits
    job, digits = string.match(key, '^([^:]*):(%d+)$')
    if job == nil or #digits >= 10 then
      return nil
    end
    run = tonumber(digits)
  end
  local row = Step.row(step, job)
  if row == nil or run > row.run then
    return nil
  end
  return row, run
end

-- Applies one event. Returns {answer, job, state}, the last two only if the job is known.
function Signal.run(event)
  Write.begin()
  Horizon.begin(event)
  -- A kept event is stored as it was sent.
  event.opens = nil
  local step = Step.new()
  local row, run = find(step, event.key)
  if row == nil then
    Write.guarded()
  else
    -- What ends a job gives room back, so it must pass a full memory.
    Write.freely()
  end
  Time.keep()
  local reply
  if row == nil then
    reply = ApplySignal.keep(step, event, event.key)
  else
    reply = ApplySignal.apply_new(step, event, row, run)
  end
  Step.flush(step)
  return reply
end
