-- Settle: writes the outcomes of live runs, each checked on its own.
-- quick: quick.settle
-- needs: base.time, base.write, tables.counts, tables.jobs, tables.workers
-- needs: engine.horizon, engine.outcomes, engine.step
local Settle = {}

-- How long a final job of no policy of its own is kept.
local KEEP_MS = 7 * 86400000

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

-- The path that must be fast: successes of jobs that need no care. Returns an array of letters,
-- false for a run that was left untouched.
local function finish_plain(worker, runs)
  local lanes, gated = Jobs.finish_plain(worker, runs, Time.now + KEEP_MS)
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

-- Those that the fast path left, as {outcome, list of letters, place there} in the request's order.
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

-- Loads the jobs of outcomes, and begins the journal if one of these may be refused, for others are
-- written before it.
local function load(step, outcomes)
  local ids, may_be_refused = {}, false
  for place, outcome in ipairs(outcomes) do
    ids[place] = outcome.job
    may_be_refused = may_be_refused or Outcomes.may_be_refused(outcome)
  end
  Step.load(step, ids)
  for _, row in pairs(step.rows) do
    may_be_refused = may_be_refused or Jobs.policy(row.policy).on_final ~= nil
  end
  if may_be_refused then
    Write.begin()
  end
end

local function settle_left(step, worker, left, live)
  local ids = {}
  for place, one in ipairs(left) do
    ids[place] = one.outcome.job
  end
  Step.load(step, ids)
  for _, one in ipairs(left) do
    one.letters[one.at] = Outcomes.settle_one(step, worker, one.outcome, live)
  end
  Step.flush(step)
end

-- Writes the outcomes of a request: `plain` is a flat array of job and run of successes with
-- nothing to say, `rest` are the others, each with its place. Returns a letter for each of them,
-- in order: d done, a already, l lost, c cancelled.
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
