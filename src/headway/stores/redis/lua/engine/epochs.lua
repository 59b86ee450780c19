-- Epochs: each fences the runs of those before.
-- needs: base.codec, base.keys, base.time, base.write, tables.trail, tables.workers, engine.wakes
local Epochs = {}

local function end_leases()
  for _, worker in ipairs(Workers.all()) do
    if not worker.lapsed and worker.lease_until > Time.now then
      worker.lease_until = Time.now
      Workers.save(worker)
    end
  end
end

-- Begins the next epoch now; its beginning is on the trail. Returns its number.
function Epochs.begin(author, reason)
  local epoch = Write.hincrby(Keys.facts, 'epoch', 1)
  Write.put(Keys.facts, 'epoch_at', Time.now)
  -- An operator has decided, so the suspicion of before no longer stops claims.
  Write.hdel(Keys.facts, { 'suspect' })
  end_leases()
  Trail.add({
    {
      at = Time.now,
      author = author,
      reason = reason,
      verb = 'new epoch',
      target = 'store',
      detail = Codec.digits(epoch),
    },
  })
  Wakes.wake(nil)
  return epoch
end
