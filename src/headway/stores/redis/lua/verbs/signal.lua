-- Signals: an external event is applied once, kept for its run, or refused as late.
-- needs: base.time, base.write, tables.signals
-- needs: rules.apply_signal, engine.horizon, engine.step
local Signal = {}

-- The job and the run that a key names; nil if there is no such run.
local function find(step, key)
  local known = ApplySignal.known_run(step, key)
  local row = known and Step.row(step, known[1])
  if row == nil or known[2] > row.run then
    return nil
  end
  return row, known[2]
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
