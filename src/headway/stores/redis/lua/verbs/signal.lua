-- Signals: apply an external event once, keep it for its run, or refuse it as late.
-- needs: base.time, base.write, tables.signals
-- needs: rules.apply_signal, engine.horizon, engine.step
local Signal = {}

-- Return the job and the run that a key names; nil if there is no such run.
local function find(step, key)
  local known = ApplySignal.known_run(step, key)
  local row = known and Step.row(step, known[1])
  if row == nil or known[2] > row.run then
    return nil
  end
  return row, known[2]
end

-- Apply one event. Return {answer, job, state}, the last two only if the job is known.
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
    -- Ending a job frees memory, so it must be allowed when memory is full.
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
