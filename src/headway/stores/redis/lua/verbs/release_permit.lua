-- Release by force: an operator takes a permit from its holder.
-- needs: base.time, base.write, tables.permits, tables.trail, engine.feeding, engine.step
local ReleasePermit = {}

-- Takes the job's permits at a gate or pool. Returns whether it held any.
function ReleasePermit.run(request)
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
    Feeding.feed_gate(step.book, name)
  end
  Step.flush(step)
  Trail.add({
    {
      at = Time.now,
      author = request.author,
      reason = request.reason,
      verb = 'release_permit',
      target = gate,
      detail = request.job,
    },
  })
  return true
end
