-- A process found over two links that the store is another one, or an older one: nothing is claimed
-- until a new epoch is begun. The first who finds it says so; see `asks` in base/run.
-- needs: base.keys, base.time, base.write, tables.trail
local Suspect = {}

--   request: by, reason.
function Suspect.run(request)
  if redis.call('HGET', Keys.facts, 'suspect') then
    return true
  end
  Write.freely()
  Time.keep()
  Write.put(Keys.facts, 'suspect', cmsgpack.pack({ Time.now, request.by, request.reason }))
  Trail.add({
    {
      at = Time.now,
      author = request.by,
      reason = request.reason,
      verb = 'store changed',
      target = 'store',
      detail = 'claims are refused',
    },
  })
  return true
end
