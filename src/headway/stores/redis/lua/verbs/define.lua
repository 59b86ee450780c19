-- Define: gates, lanes, entries and closings are declared, changed or reset.
-- needs: base.codec, base.fail, base.time, base.write, tables.facts, tables.trail
-- needs: engine.definitions, engine.horizon, engine.step, engine.wakes
local Define = {}

Define.journal = true

local function check_revision(request, revision)
  if request.revision ~= nil and request.revision ~= revision then
    Fail.refuse(
      'RevisionConflict',
      'the definitions are at revision '
        .. Codec.digits(revision)
        .. ', not '
        .. Codec.digits(request.revision),
      'read them again, and repeat the change'
    )
  end
end

-- Does one item. Returns whether anything changed.
local function do_item(item, request)
  local step = Step.new()
  local verb, target, detail = Definitions.define(step, item, request)
  Step.flush(step)
  if verb == nil then
    return false
  end
  Trail.add({
    {
      at = Time.now,
      author = request.author,
      reason = request.reason,
      verb = verb,
      target = target,
      detail = detail,
    },
  })
  return true
end

-- Does all items or, where one is refused, none. Returns the revision of the definitions now.
function Define.run(request)
  local revision = Facts.revision()
  check_revision(request, revision)
  Write.guarded()
  Time.keep()
  Horizon.begin(request)
  local changed = false
  for _, item in ipairs(request.items) do
    changed = do_item(item, request) or changed
  end
  if not changed then
    return revision
  end
  Wakes.wake(nil)
  return Facts.bump_revision()
end
