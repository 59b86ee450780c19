-- The store's own facts: who it is, its epoch, its revision, who leads.
-- needs: base.keys, base.write, base.time

local Facts = {}

-- Written once, random; nil before the first write.
function Facts.identity()
  return redis.call('HGET', Keys.facts, 'identity') or nil
end

-- Raised when an older state came back; part of the fence.
function Facts.epoch()
  return tonumber(redis.call('HGET', Keys.facts, 'epoch') or 1)
end

-- Of the definitions.
function Facts.revision()
  return tonumber(redis.call('HGET', Keys.facts, 'revision') or 0)
end

-- One more.
function Facts.bump_revision()
  return Write.hincrby(Keys.facts, 'revision', 1)
end

-- By how much the store's time is ahead of its clock.
function Facts.clock_ahead_ms()
  return Time.ahead_ms()
end

-- {holder, term, until_at} of a role; nil for none.
function Facts.leader(role)
  local kept = redis.call('HGET', Keys.leaders, role)
  if not kept then
    return nil
  end
  local values = cmsgpack.unpack(kept)
  return { holder = values[1], term = values[2], until_at = values[3] }
end

-- Writes a role's leader.
function Facts.set_leader(role, holder, term, until_at)
  Write.put(Keys.leaders, role, cmsgpack.pack({ holder, term, until_at }))
end
