-- The store as a whole: its identity, leaders, epochs, and the suspicion that it was replaced.
-- needs: base.codec, base.keys, base.run, base.time, base.write, tables.trail, tables.workers
local Store = {}

-- Do nothing: the runner itself gives the store an identity, and replies with its fingerprint.
function Store.fingerprint(_)
  return true
end

-- Return the {holder, term, until_at} of a role; nil if there is none.
function Store.leader(role)
  local kept = redis.call('HGET', Keys.leaders, role)
  if not kept then
    return nil
  end
  local values = cmsgpack.unpack(kept)
  return { holder = values[1], term = values[2], until_at = values[3] }
end

-- Write a role's leader.
function Store.set_leader(role, holder, term, until_at)
  Write.put(Keys.leaders, role, cmsgpack.pack({ holder, term, until_at }))
end

-- Make or keep a holder the leader of a role, so that only one at a time does chores with outside
-- effects. Return its term, or false while another leads.
function Store.lead(request)
  local current = Store.leader(request.role)
  local term = 1
  if current ~= nil then
    term = current.term
    if current.holder ~= request.holder or current.until_at <= Time.now then
      if current.until_at > Time.now then
        return false
      end
      -- Also for the same holder, because others may have led in the meantime.
      term = term + 1
    end
  end
  Write.freely()
  Time.keep()
  Store.set_leader(request.role, request.holder, term, Time.now + request.lease_ms)
  return term
end

local function end_leases()
  for _, worker in ipairs(Workers.all()) do
    if not worker.lapsed and worker.lease_until > Time.now then
      worker.lease_until = Time.now
      Workers.save(worker)
    end
  end
end

-- Start the next epoch now, which fences all earlier runs. Return its number.
local function begin_epoch(request)
  local epoch = Write.hincrby(Keys.facts, 'epoch', 1)
  Write.put(Keys.facts, 'epoch_at', Time.now)
  -- An operator has decided, so the suspicion no longer stops claims.
  Write.hdel(Keys.facts, { 'suspect' })
  end_leases()
  Trail.note(request.author, request.reason, 'new epoch', 'store', Codec.digits(epoch))
  Run.wake(nil)
  return epoch
end

-- Start a new epoch for an operator: end every lease, so that earlier runs can no longer write
-- anything. Return the epoch.
function Store.new_epoch(request)
  Write.freely()
  Time.keep()
  return begin_epoch(request)
end

-- Set the store's time back to its clock, in a new epoch; every lease ends, because its end may be
-- far ahead. Return by how many ms.
function Store.reset_clock(request)
  local ahead = Time.ahead_ms()
  Write.freely()
  Time.turn_back()
  begin_epoch(request)
  return ahead
end

-- Mark the store as suspect: a process found on two links that it was replaced, or restored to an
-- older state. Claims are refused until a new epoch. The first process to find it marks it; see
-- `asks` in base/run.
--   request: by, reason.
function Store.suspect(request)
  if redis.call('HGET', Keys.facts, 'suspect') then
    return true
  end
  Write.freely()
  Time.keep()
  Write.put(Keys.facts, 'suspect', cmsgpack.pack({ Time.now, request.by, request.reason }))
  Trail.note(request.by, request.reason, 'store changed', 'store', 'claims are refused')
  return true
end
