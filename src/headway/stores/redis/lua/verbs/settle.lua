-- Settle: write the outcomes of live runs, each checked separately.
-- quick: quick.settle
-- python: stores.ledger.verbs.settle._cut as =, contract.outcomes.Failed.line as .
-- needs: base.codec, base.time, base.write, tables.counts, tables.jobs, tables.signals
-- needs: tables.workers
-- needs: engine.horizon, engine.step, rules.apply_signal, rules.job_limits, rules.moves
-- needs: rules.outcomes, rules.state
local Settle = {}

local function count_ends(runs, lanes)
  local by_lane, order = {}, {}
  for place = 1, #runs / 2 do
    local lane = lanes[place]
    if lane then
      local number = by_lane[lane]
      if number == nil then
        order[#order + 1] = lane
      end
      by_lane[lane] = (number or 0) + 1
    end
  end
  for _, lane in ipairs(order) do
    Counts.move(lane, 'running', 'succeeded', by_lane[lane])
    Counts.happened('succeeded', by_lane[lane])
  end
end

local function give_back(runs, lanes)
  local ended = {}
  for place = 1, #runs / 2 do
    if lanes[place] then
      ended[#ended + 1] = runs[2 * place - 1]
    end
  end
  Step.give_back_all(Step.unguarded(), ended)
end

-- Finish successes of jobs that need no care, fast. Return an array of letters, false for an
-- unchanged run.
local function finish_plain(worker, runs)
  local lanes, gated = Jobs.finish_plain(worker, runs, Time.now + JobLimits.KEEP_MS)
  local letters = {}
  for place = 1, #runs / 2 do
    letters[place] = lanes[place] and 'd' or false
  end
  count_ends(runs, lanes)
  if gated then
    give_back(runs, lanes)
  end
  return letters
end

-- Return the outcomes that the fast path left, with the list of letters and the place there, in the
-- request's order.
local function left_over(request, plain)
  local left, taken, rest = {}, {}, {}
  for place, outcome in ipairs(request.rest) do
    taken[outcome.place] = true
    left[#left + 1] = { outcome = outcome, letters = rest, at = place, place = outcome.place }
  end
  local place = 0
  for at, letter in ipairs(plain) do
    while taken[place] do
      place = place + 1
    end
    if not letter then
      local outcome =
        { type = 'Succeeded', job = request.plain[2 * at - 1], run = request.plain[2 * at] }
      left[#left + 1] = { outcome = outcome, letters = plain, at = at, place = place }
    end
    place = place + 1
  end
  table.sort(left, function(one, other)
    return one.place < other.place
  end)
  return left, rest
end

-- Return whether an outcome may be refused, which is detected only after others were written.
local function outcome_may_be_refused(outcome)
  local kind = outcome.type
  return outcome['then'] ~= nil
    or outcome.close ~= nil
    or kind == 'NextStage'
    or (kind == 'Failed' and outcome.stage ~= '')
    or kind == 'Returned'
    or kind == 'GaveBack'
    or (kind == 'Succeeded' and #(outcome.result or '') > Outcomes.MAX_RESULT)
    or (kind == 'Snoozed' and outcome.until_at == nil and outcome.after_ms == nil)
end

-- Return whether a key may be refused: it names another job, or several outcomes of this request
-- have it; or an event that was kept for the run may be, whose stage may have become invalid.
local function key_may_be_refused(step, outcome, keys)
  local key = outcome.key
  if key == nil then
    return false
  end
  local known = ApplySignal.known_run(step, key)
  local again = keys[key]
  keys[key] = true
  return key == ''
    or again
    or (known ~= nil and known[1] ~= outcome.job)
    or Signals.has_kept(key)
    or Signals.has_kept(outcome.job .. ':' .. Codec.digits(outcome.run))
end

-- Load the jobs of outcomes, and start the journal if one may be refused, because others are
-- written before it.
local function load(step, outcomes)
  local ids, keys, may_be_refused = {}, {}, false
  for place, outcome in ipairs(outcomes) do
    ids[place] = outcome.job
    may_be_refused = key_may_be_refused(step, outcome, keys)
      or may_be_refused
      or outcome_may_be_refused(outcome)
  end
  Step.load(step, ids)
  if may_be_refused then
    Write.begin()
  end
end

-- Write one outcome into the step. Return done, already, lost or cancelled.
--
-- Refuse what is not possible; the step is then rolled back.
local function settle_one(step, worker, outcome, live)
  local row = Step.row(step, outcome.job)
  if row == nil then
    return 'lost'
  end
  if
    not (live and State.HELD[row.state] and row.run == outcome.run and row.worker == worker)
  then
    return Outcomes.verdict_of_ended(step, worker, row, outcome)
  end
  local cancelled = row.cancel_requested
  local verdict = Outcomes.APPLY[outcome.type](step, row, outcome)
  if verdict == 'done' then
    if not (cancelled and outcome.type == 'HandedOver') then
      -- Follow-ups of a refused hand-over would affect the outside world.
      for _, job in ipairs(outcome['then'] or {}) do
        step.then_jobs[#step.then_jobs + 1] = job
      end
    end
    Moves.close(step, outcome.close or {}, 'job ' .. row.id)
    if cancelled and row.state == 'cancelled' then
      return 'cancelled'
    end
  end
  return verdict
end

local function settle_left(step, worker, left, live)
  local ids = {}
  for place, one in ipairs(left) do
    ids[place] = one.outcome.job
  end
  Step.load(step, ids)
  for _, one in ipairs(left) do
    one.letters[one.at] = string.sub(settle_one(step, worker, one.outcome, live), 1, 1)
  end
  Step.flush(step)
end

-- Write the outcomes of a request: `plain` is a flat array of job and run of plain successes,
-- `rest` are the others, each with its place. Return a letter for each, in order: d done, a
-- already, l lost, c cancelled.
function Settle.run(request)
  Write.freely()
  Time.keep()
  local worker = Workers.load(request.worker)
  local live = worker ~= nil and not worker.lapsed and worker.lease_until > Time.now
  local step = nil
  if #request.rest > 0 then
    step = Step.unguarded()
    load(step, request.rest)
  end
  local plain = {}
  if live and #request.plain > 0 then
    plain = finish_plain(request.worker, request.plain)
  else
    for place = 1, #request.plain / 2 do
      plain[place] = false
    end
  end
  local left, rest = left_over(request, plain)
  if #left > 0 then
    Horizon.begin(request)
    settle_left(step or Step.unguarded(), request.worker, left, live)
  end
  return { plain = table.concat(plain), rest = table.concat(rest) }
end
