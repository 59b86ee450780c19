-- Jobs that follow from another's end or doubt, made in the same step.
-- needs: engine.ids

local FollowUps = {}

local DAY_MS = 86400000

local function policy_with(retry)
  return {
    retry = retry,
    start_within_ms = 1000,
    on_deadline = 'dead',
    reconcile_within_ms = 300000,
    keep_ms = 7 * DAY_MS,
    key_for_ms = 7 * DAY_MS,
    cascade = false,
  }
end

-- What a kind says that says nothing.
FollowUps.DEFAULT_POLICY = policy_with({
  attempts = 5,
  base_ms = 10000,
  factor = 2,
  cap_ms = 3600000,
  jitter = 'equal',
})

-- It asks until the deadline decides: giving up sooner would leave the permits taken till then.
local RECONCILE_POLICY = policy_with({
  attempts = 100000,
  base_ms = 1000,
  factor = 2,
  cap_ms = 30000,
  jitter = 'equal',
})

local NAMED = {
  ['"'] = '\\"',
  ['\\'] = '\\\\',
  ['\b'] = '\\b',
  ['\f'] = '\\f',
  ['\n'] = '\\n',
  ['\r'] = '\\r',
  ['\t'] = '\\t',
}

-- A character that is no plain ASCII as JSON escapes it; beyond 16 bits as a pair of surrogates.
local function escaped(character)
  if NAMED[character] then
    return NAMED[character]
  end
  local first = string.byte(character)
  if first < 128 then
    return string.format('\\u%04x', first)
  end
  local point = first < 224 and first % 32 or first < 240 and first % 16 or first % 8
  for place = 2, #character do
    point = point * 64 + string.byte(character, place) % 64
  end
  if point < 65536 then
    return string.format('\\u%04x', point)
  end
  local high, low = math.floor((point - 65536) / 1024), point % 1024
  return string.format('\\u%04x\\u%04x', 55296 + high, 56320 + low)
end

-- A text in JSON, all ASCII; so that each store makes the same bytes.
local function quoted(text)
  text = string.gsub(text, '[%z\1-\31"\\\127]', escaped)
  return '"' .. string.gsub(text, '[\194-\244][\128-\191]*', escaped) .. '"'
end

local function new_job(row, kind, lane, policy)
  return {
    kind = kind,
    lane = lane,
    tenant = row.tenant,
    subject = row.subject,
    stage = '',
    priority = 512,
    gates = {},
    policy = policy,
    candidates = {},
  }
end

-- The `on_final` job of a job that ended; the same life gives the same job.
--   row: the cause, already final; follow: what its kind says.
function FollowUps.follow_up(row, follow)
  local job = new_job(row, follow.kind, follow.lane or row.lane, FollowUps.DEFAULT_POLICY)
  job.id = Ids.derived_id({ 'on_final', row.id, row.life })
  job.args = '{"job":'
    .. quoted(row.id)
    .. ',"state":'
    .. quoted(row.state)
    .. ',"reason":'
    .. quoted(row.reason)
    .. '}'
  return job
end

-- The `on_accepted` job of a job that was accepted; the same run gives the same job.
--   row: the cause, awaiting its end; follow: what its kind says.
function FollowUps.accepted_job(row, follow)
  local job = new_job(row, follow.kind, follow.lane or row.lane, FollowUps.DEFAULT_POLICY)
  job.id = Ids.derived_id({ 'on_accepted', row.id, row.run })
  job.args = string.format(
    '{"job":%s,"state":"accepted","candidate":%s,"run":%.0f}',
    quoted(row.id),
    quoted(row.candidate),
    row.run
  )
  return job
end

-- The job that asks the provider what became of a run.
--   row: awaiting; kind: the reconcile kind.
function FollowUps.reconcile_job(row, kind)
  local job = new_job(row, kind, row.lane, RECONCILE_POLICY)
  job.id = Ids.derived_id({ 'reconcile', row.id, row.run, row.reconciles })
  job.args = string.format(
    '{"job":%s,"run":%.0f,"asked":%.0f}',
    quoted(row.id),
    row.run,
    row.reconciles
  )
  return job
end
