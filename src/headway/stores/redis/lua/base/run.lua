-- The runner: what every call does around its verb.
--
-- ARGV[1] is the request, packed; ARGV[2] the clock in ms, or "" for the server's; ARGV[3] what
-- the client saw of the store last, packed {identity, epoch, high, suspected epoch or nothing}, or
-- "" where it saw nothing; ARGV[4] is random, the client's own, and becomes the identity of a
-- store without one; ARGV[5] "1" if nothing may be done in a store that is another one, or an older
-- one, than a process saw, and "2" to mark it so.
--
-- The reply is packed: {status, value, now, wakes, identity, epoch, high, doubted}. Status 0: the
-- verb's value. 1: refused, {error, message, hint}. 2: asked again with hours, {hours}. 3: the store
-- is not the one that was seen, {at, by, reason} as it was marked. 4: the store is not the one that
-- this client saw, and not marked yet: the client makes sure over a new link. But for 0 nothing was
-- written.
-- needs: base.keys, base.time, base.write, engine.wakes
local Run = {}

local FORMAT = '1'
local CHANNEL = Keys.wakes

local identity, epoch, epoch_at, format, suspect
local doubted = false

local function look(writes)
  local facts =
    redis.call('HMGET', Keys.facts, 'identity', 'epoch', 'epoch_at', 'format', 'suspect', 'high_at')
  Time.begin(ARGV[2], facts[6])
  identity, epoch, epoch_at = facts[1], tonumber(facts[2] or 1), tonumber(facts[3] or 0)
  format, suspect = facts[4], facts[5]
  if writes and not identity and (not format or format == FORMAT) then
    identity, format = ARGV[4], FORMAT
    redis.call('HSET', Keys.facts, 'identity', identity, 'epoch', epoch, 'format', FORMAT)
  end
end

-- Whether the store may follow what the client saw: after an operator's word, which is a new epoch
-- begun later than all that was seen, or where it is the same and no older.
local function fits(seen)
  local before, before_epoch, before_high, suspected = seen[1], seen[2], seen[3], seen[4]
  if suspected and epoch > suspected or epoch > 1 and epoch_at >= before_high then
    return true
  end
  if identity ~= before or epoch < before_epoch then
    return false
  end
  return epoch > before_epoch or Time.high() >= before_high
end

local function reply(status, value, wakes)
  if value == nil then
    value = false
  end
  local now, high = Time.now, Time.high()
  return cmsgpack.pack({ status, value, now, wakes, identity, epoch, high, doubted })
end

-- The reply where nothing is done: the store is another one, or an older one, than was seen; nil if
-- the verb runs. Who finds it first marks it for all others: time goes on, and who looks later may see
-- nothing odd.
local function refused_as_changed()
  local asks = ARGV[5]
  doubted = ARGV[3] ~= '' and not fits(cmsgpack.unpack(ARGV[3]))
  if asks == '2' then
    return not doubted and reply(0, false, {}) or nil
  end
  if doubted and not suspect then
    return reply(4, false, {})
  end
  if suspect and asks == '1' then
    return reply(3, cmsgpack.unpack(suspect), {})
  end
  return nil
end

-- Publishes to other processes which lanes to wake, if any process waits.
local function publish(wakes)
  if #wakes > 0 and redis.call('EXISTS', Keys.waiters) == 1 then
    redis.call('PUBLISH', CHANNEL, cmsgpack.pack({ ARGV[4], wakes }))
  end
end

local function begins_journal(verb, request)
  if type(verb.journal) == 'function' then
    return verb.journal(request)
  end
  return verb.journal
end

-- What the error of a verb is to the client: a reply, or an error of the script.
local function failed(problem)
  if type(problem) == 'table' and problem.refused then
    local refused = problem.refused
    return reply(1, { refused.error, refused.message, refused.hint }, {})
  end
  if type(problem) == 'table' and problem.need then
    return reply(2, problem.need, {})
  end
  if type(problem) == 'table' and problem.err then
    return { err = problem.err }
  end
  return { err = 'ERR ' .. tostring(problem) }
end

-- Runs a verb, or a read, which writes nothing.
function Run.call(verb, writes)
  look(writes)
  if format and format ~= FORMAT then
    local message = 'the store is of format ' .. format .. ', and this program knows ' .. FORMAT
    local hint = 'run the program that made it; nothing was written'
    return reply(1, { 'SchemaMismatch', message, hint }, {})
  end
  local changed = refused_as_changed()
  if changed then
    return changed
  end
  local request = cmsgpack.unpack(ARGV[1])
  if writes and begins_journal(verb, request) then
    Write.begin()
  end
  local done, value = pcall(verb.run, request)
  if not done then
    Write.roll_back()
    -- A client that got a time which the store does not keep would take the store for an older one.
    Time.look_again()
    return failed(value)
  end
  if not writes then
    return reply(0, value, {})
  end
  Write.finish()
  local wakes = Wakes.list()
  publish(wakes)
  return reply(0, value, wakes)
end
