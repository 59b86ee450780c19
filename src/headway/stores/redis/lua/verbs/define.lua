-- Define: declare, change or reset gates, lanes, entries, closings and tokens.
-- needs: base.codec, base.run, base.time, base.write, tables.declared, tables.trail
-- needs: engine.tokens, engine.horizon, engine.step, rules.definitions
local Define = {}

-- Items that cannot make a job startable.
local OF_TOKENS = { SetToken = true, RevokeToken = true }

local function check_revision(request, revision)
  if request.revision ~= nil and request.revision ~= revision then
    Run.refuse(
      'RevisionConflict',
      'the definitions are at revision '
        .. Codec.digits(revision)
        .. ', not '
        .. Codec.digits(request.revision),
      'read them again, then repeat the change'
    )
  end
end

-- Apply one item. Return whether anything changed.
local function do_item(item, request)
  local step = Step.new()
  local entry = Definitions.HANDLERS[item.type](step, item, request)
  Step.flush(step)
  if entry == nil then
    return false
  end
  local verb, target, detail = unpack(entry)
  Trail.note(request.author, request.reason, verb, target, item.said or detail)
  return true
end

-- Apply all items, or none if one is refused. Return the current revision of the definitions.
function Define.run(request)
  Write.begin()
  local revision = Declared.revision()
  check_revision(request, revision)
  Write.guarded()
  Time.keep()
  Horizon.begin(request)
  local changed, wakes, sets = false, false, false
  for _, item in ipairs(request.items) do
    if do_item(item, request) then
      changed = true
      wakes = wakes or not OF_TOKENS[item.type]
      sets = sets or item.type == 'SetToken'
    end
  end
  if not changed then
    return revision
  end
  if sets then
    Tokens.check_number()
  end
  if wakes then
    Run.wake(nil)
  end
  return Declared.bump_revision()
end
