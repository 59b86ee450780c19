-- An operator's actions on jobs and their permits, each recorded on the trail.
-- needs: base.python, base.time, base.write, tables.trail, tables.permits, rules.actions
-- needs: engine.horizon, engine.step, rules.feeding

local Act = {}

local function act_on(step, request, id)
  local row = Step.row(step, id)
  if row == nil then
    return { id, 'unknown', false }
  end
  if #request.states > 0 and Python.find(request.states, row.state) == nil then
    return { id, 'refused', row.state }
  end
  local answer = Actions.VERBS[request.verb](step, row, request)
  return { id, answer, row.state }
end

local function add_to_trail(request, replies)
  local lines = {}
  for _, reply in ipairs(replies) do
    if reply[2] == 'done' or reply[2] == 'asked' then
      lines[#lines + 1] = {
        at = Time.now,
        author = request.author,
        reason = request.reason,
        verb = request.verb,
        target = reply[1],
        detail = reply[2],
      }
    end
  end
  Trail.add(lines)
end

-- Apply an action to each job. Return {id, answer, state or false} each, in order; a repeated
-- request gets the reply of the first.
function Act.run(request)
  local before = Trail.answer(request.request)
  if before ~= nil then
    return cmsgpack.unpack(before)
  end
  Horizon.begin(request)
  Write.freely()
  Time.keep()
  local step, replies = Step.new(), {}
  Step.load(step, request.ids)
  for place, id in ipairs(request.ids) do
    replies[place] = act_on(step, request, id)
  end
  Step.flush(step)
  add_to_trail(request, replies)
  Trail.keep_answer(request.request, cmsgpack.pack(replies))
  return replies
end

-- Release a job's permits at a gate or pool by force. Return whether it held any; the repeat of a
-- request that released some releases none, and gets its reply.
function Act.release_permit(request)
  if request.request ~= '' and Trail.answer(request.request) ~= nil then
    return true
  end
  local gate, permits = request.gate, {}
  for _, one in ipairs(Permits.of_jobs({ request.job })) do
    if one.gate == gate or one.pool == gate then
      permits[#permits + 1] = one
    end
  end
  if #permits == 0 then
    return false
  end
  Write.freely()
  Time.keep()
  local step = Step.new()
  for _, name in ipairs(Step.return_permits(step, permits)) do
    Feeding.feed_gate(step.cache, name)
  end
  Step.flush(step)
  Trail.note(request.author, request.reason, 'release_permit', gate, request.job)
  if request.request ~= '' then
    Trail.keep_answer(request.request, 'released')
  end
  return true
end
