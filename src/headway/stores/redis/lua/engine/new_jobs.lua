-- New jobs: their ids, their rows, and follow-ups of other jobs.
-- python: stores.ledger.insert.accepted_job, stores.ledger.insert.follow_up
-- python: stores.ledger.insert.reconcile_job, stores.ledger.verbs.define._with_id
-- python: core.job.body_hash, core.job.fire_id
-- needs: base.python, base.time, rules.job_limits

local NewJobs = {}

local format, sub = string.format, string.sub

-- Return a hash of what two enqueues with one key or id must agree on; 12 bytes.
function NewJobs.body_hash(kind, lane, tenant, subject, args)
  local head = {}
  -- Each part is preceded by its length, so that different lists of parts give different texts.
  for _, part in ipairs({ kind, lane, tenant, subject or '' }) do
    head[#head + 1] = struct.pack('>I4', #part)
    head[#head + 1] = part
  end
  head[#head + 1] = args
  local hash = sub(redis.sha1hex(table.concat(head)), 1, 24)
  return (string.gsub(hash, '%x%x', function(pair)
    return string.char(tonumber(pair, 16))
  end))
end

-- Return the id of a job derived from others: the same parts give the same id.
--   parts: an array of texts and whole numbers.
-- Return a UUID of version 8, as canonical text.
function NewJobs.derived_id(parts)
  local texts = {}
  for place, part in ipairs(parts) do
    -- Not tostring, which would round a number to fourteen digits.
    texts[place] = type(part) == 'number' and format('%.0f', part) or part
  end
  local hash = redis.sha1hex(table.concat(texts, '\31'))
  local variant = format('%x', 8 + tonumber(sub(hash, 17, 17), 16) % 4)
  return table.concat({
    sub(hash, 1, 8),
    sub(hash, 9, 12),
    '8' .. sub(hash, 14, 16),
    variant .. sub(hash, 18, 20),
    sub(hash, 21, 32),
  }, '-')
end

-- Return the id of the job for a timetable entry's fire, unless that id is taken.
function NewJobs.fire_id(entry, first_seen_at, revision, fired_at)
  return NewJobs.derived_id({ 'fire', entry, first_seen_at, revision, fired_at })
end

-- Return the next ids in the series of a derived id that another job has.
function NewJobs.ids_after(taken, n)
  local found = {}
  for place = 1, n do
    taken = NewJobs.derived_id({ 'after', taken })
    found[place] = taken
  end
  return found
end

-- Return a job with another id.
function NewJobs.with_id(job, id)
  return Python.replace(job, { id = id })
end

local function policy_with(retry)
  return {
    retry = retry,
    start_within_ms = 1000,
    on_deadline = 'dead',
    reconcile_within_ms = 300000,
    keep_ms = JobLimits.KEEP_MS,
    key_for_ms = JobLimits.KEEP_MS,
    cascade = false,
  }
end

-- The policy of a kind without settings.
NewJobs.DEFAULT_POLICY = policy_with({
  attempts = 5,
  base_ms = 10000,
  factor = 2,
  cap_ms = 3600000,
  jitter = 'equal',
})

-- Retries until the deadline: giving up earlier would leave the permits taken until then.
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

-- Escape a character for JSON; beyond 16 bits as a pair of surrogates.
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

-- Encode a text as ASCII JSON, so that each store creates the same bytes.
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
    priority = JobLimits.DEFAULT_PRIORITY,
    gates = {},
    policy = policy or NewJobs.DEFAULT_POLICY,
    candidates = {},
  }
end

-- Return the `on_final` job of a final job; the same life gives the same job.
--   row: the cause, already final; follow: settings of its kind.
function NewJobs.follow_up(row, follow)
  local job = new_job(row, follow.kind, follow.lane or row.lane, follow.policy)
  job.id = NewJobs.derived_id({ 'on_final', row.id, row.life })
  job.args = '{"job":'
    .. quoted(row.id)
    .. ',"state":'
    .. quoted(row.state)
    .. ',"reason":'
    .. quoted(row.reason)
    .. '}'
  return job
end

-- Return the `on_accepted` job of an accepted job; the same run gives the same job.
--   row: the cause, awaiting; follow: settings of its kind.
function NewJobs.accepted_job(row, follow)
  local job = new_job(row, follow.kind, follow.lane or row.lane, follow.policy)
  job.id = NewJobs.derived_id({ 'on_accepted', row.id, row.run })
  job.args = string.format(
    '{"job":%s,"state":"accepted","candidate":%s,"run":%.0f}',
    quoted(row.id),
    quoted(row.candidate),
    row.run
  )
  return job
end

-- Return the job that asks the provider about a run.
--   row: awaiting; kind: the reconcile kind.
function NewJobs.reconcile_job(row, kind)
  local job = new_job(row, kind, row.lane, RECONCILE_POLICY)
  job.id = NewJobs.derived_id({ 'reconcile', row.id, row.run, row.reconciles })
  job.args = string.format(
    '{"job":%s,"run":%.0f,"asked":%.0f}',
    quoted(row.id),
    row.run,
    row.reconciles
  )
  return job
end

-- Return whether a job's end needs more than a changed state.
function NewJobs.needs_care(policy)
  return policy.on_final ~= nil
    or policy.cascade
    or policy.keep_ms ~= NewJobs.DEFAULT_POLICY.keep_ms
end

-- Return the state of a job that is created now.
function NewJobs.state_of(job, due_at)
  if job.policy.cascade and #(job.candidates or {}) == 0 then
    return 'dead'
  end
  -- A fire's overlap is decided at promotion, even if it is already due.
  if due_at > Time.now or job.entry ~= nil then
    return 'scheduled'
  end
  return 'waiting'
end

-- Return the row of a job whose shape has its flow and policy numbers; `job.created_at` is set if
-- it was created elsewhere before.
function NewJobs.row_of(job, shape)
  local now, policy = Time.now, job.policy
  local due_at = job.due_at or now
  local row = {
    id = job.id,
    lane = job.lane,
    tenant = job.tenant,
    kind = job.kind,
    subject = job.subject,
    stage = job.stage or '',
    priority = job.priority,
    due_at = due_at,
    args = job.args,
    flow = shape.flow,
    policy = shape.policy_number,
    state = NewJobs.state_of(job, due_at),
    created_at = job.created_at or now,
    expires_at = job.expires_at,
    key = job.key,
    keyed = shape.keyed,
    care = shape.care or job.key ~= nil or job.entry ~= nil,
    life = 1,
    entry = job.entry,
    fired_at = job.fired_at,
  }
  if policy.cascade then
    row.cascade = { left = job.candidates or {}, turn = '', asked = {} }
  end
  return row
end
