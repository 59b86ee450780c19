-- Runs a verb: compares the store with the client's fingerprint, rolls back a refused verb, and
-- adds the lanes to wake to the reply.
-- python: stores.ledger.ledger.Ledger, stores.ledger.step.Step.wake
-- needs: base.time, base.keys, base.write

local Run = {}

local ESCAPES = { ['\\'] = '\\\\', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t' }

local function escaped(character)
  return ESCAPES[character] or string.format('\\x%02x', string.byte(character))
end

-- Quote a name as Python's repr does, except that Unicode is never escaped.
function Run.quoted(name)
  local inner = string.gsub(name, '[%z\1-\31\127\\]', escaped)
  if string.find(name, "'", 1, true) and not string.find(name, '"', 1, true) then
    return '"' .. inner .. '"'
  end
  return "'" .. string.gsub(inner, "'", "\\'") .. "'"
end

-- Refuse the verb: the runner rolls back and replies with the error.
--   name: class of the error, such as "KeyConflict".
function Run.refuse(name, message, hint)
  error({ refused = { error = name, message = message, hint = hint or '' } }, 0)
end

-- Request hours from the client, which a script cannot compute; it sends the same request with
-- them.
--   hours: an array of {name, template, zone, spec}.
function Run.need(hours)
  error({ need = { hours = hours } }, 0)
end

local sent = {}
-- The wakes by lane; "" means any lane, because no lane's name is empty.
local by_lane = {}

-- Wake waiters of a lane (nil: of any lane) after the step, at a time (nil: now).
--
-- A woken waiter claims, and then learns of later times; so the first per lane is enough.
function Run.wake(lane, at)
  if at == nil or at <= Time.now then
    at = false
  end
  local one = by_lane[lane or '']
  if one == nil then
    one = { lane or false, at }
    by_lane[lane or ''] = one
    sent[#sent + 1] = one
  elseif not at or (one[2] and at < one[2]) then
    one[2] = at
  end
end

-- Return the wakes: {lane or false, time or false} each, in order.
function Run.wakes()
  return sent
end

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

-- Return whether the store may follow the client's fingerprint: after an operator started a new
-- epoch, later than the fingerprint, or if it is the same store and no older.
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

-- Return the reply for a replaced or older store; nil if the verb runs. The first process that
-- detects it marks the store for all others, because after some time a check may find nothing odd.
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

-- Publish the lanes to wake to other processes, if any process waits.
local function publish(wakes)
  if #wakes > 0 and redis.call('EXISTS', Keys.waiters) == 1 then
    redis.call('PUBLISH', CHANNEL, cmsgpack.pack({ ARGV[4], wakes }))
  end
end

-- Convert a verb's error for the client: to a reply, or to an error of the script.
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

-- Run a function of a module of verbs, or of reads, which write nothing.
--   request: if already unpacked; see base/quick.
function Run.call(module, name, writes, request)
  look(writes)
  if format and format ~= FORMAT then
    local message = 'the store has format ' .. format .. ', and this program supports ' .. FORMAT
    local hint = 'run the version that created it; nothing was written'
    return reply(1, { 'SchemaMismatch', message, hint }, {})
  end
  local changed = refused_as_changed()
  if changed then
    return changed
  end
  local done, value = pcall(module[name], request or cmsgpack.unpack(ARGV[1]))
  if not done then
    Write.roll_back()
    -- A client with a time that was not stored would take the store for an older one.
    Time.refresh()
    return failed(value)
  end
  if not writes then
    return reply(0, value, {})
  end
  Write.finish()
  local wakes = Run.wakes()
  publish(wakes)
  return reply(0, value, wakes)
end
