-- Unpack rows of jobs: whole, as heads, or the parts that a step needs.
-- needs: base.codec, tables.interned, tables.job_record, rules.cascade

local JobReading = {}

local unpack_bytes = struct.unpack
local byte, sub, char = string.byte, string.sub, string.char
local NONE = Codec.NONE

JobReading.STATES = {
  s = 'scheduled',
  w = 'waiting',
  p = 'parked',
  r = 'running',
  a = 'awaiting',
  S = 'succeeded',
  D = 'dead',
  C = 'cancelled',
}

-- Fields that may be stored separately, by letter.
JobReading.FIELDS = { a = 'args', r = 'result', p = 'progress', e = 'error' }

-- Outcomes that have a number; others are in the rest.
local OUTCOMES = { [0] = '', [1] = 'succeeded' }

-- The rest of most jobs; read-only.
local NOTHING = {}

-- Return the rest of a row, and the position after it.
local function read_rest(raw)
  local worker, last, size = unpack_bytes('>I2I2I4', raw, 72)
  local from = 80 + worker + last
  if size == 0 then
    return NOTHING, from
  end
  return cmsgpack.unpack(sub(raw, from, from + size - 1)), from + size
end

-- Return the fields of the head in order, and defaults for the rest. All at once, because a table
-- that grows field by field is copied repeatedly.
local function unpack_head(raw, id)
  local state, flags, flow, priority, due, seq, policy, created, run, attempt, blocked, request,
    claimed, finished, purge, outcome, worker, last =
    unpack_bytes(JobRecord.HEAD, raw)
  local key = Interned.flow(flow)
  return {
    id = id,
    lane = key.lane,
    tenant = key.tenant,
    kind = key.kind,
    subject = nil,
    stage = '',
    priority = priority,
    due_at = due,
    args = nil,
    flow = flow,
    policy = policy,
    state = JobReading.STATES[char(state)],
    created_at = created,
    seq = seq,
    body = '',
    expires_at = nil,
    key = nil,
    keyed = nil,
    care = flags % 2 >= 1,
    run = run,
    attempt = attempt,
    life = 1,
    ticket = nil,
    ticket_amount = 0,
    parked_at = nil,
    unfit = flags % 8 >= 4,
    parked_since = 0,
    blocked_ms = blocked,
    worker = worker > 0 and sub(raw, 80, 79 + worker) or nil,
    last_worker = sub(raw, 80 + worker, 79 + worker + last),
    request = request,
    claimed_at = claimed ~= NONE and claimed or nil,
    deadline_at = nil,
    in_doubt = flags % 32 >= 16,
    members = nil,
    gated = flags % 4 >= 2,
    candidate = '',
    cancel_requested = flags % 16 >= 8,
    reconciles = 0,
    finished_at = finished ~= NONE and finished or nil,
    purge_at = purge ~= NONE and purge or nil,
    outcome = OUTCOMES[outcome],
    reason = '',
    error = '',
  }
end

-- Unpack a row. Return it, and the letters of separate values that are still missing.
function JobReading.unpack(raw, id)
  local row = unpack_head(raw, id)
  local rest, behind = read_rest(raw)
  -- A plain end changes only the number, and leaves the outcome of an earlier run in the rest.
  local outcome = row.outcome or rest.outcome
  for field, value in pairs(rest) do
    row[field] = value
  end
  row.outcome = outcome
  row.keyed = rest.keyed and Codec.unpack_uses(rest.keyed) or {}
  row.members = rest.members or {}
  row.far = nil
  local letters = rest.far or ''
  if byte(raw, 2) % 128 >= 64 then
    letters = letters .. 'a'
  else
    row.args = sub(raw, behind, -2)
  end
  return row, letters
end

-- Unpack the fields by which a row is filed, and its key.
function JobReading.filed(raw, id)
  local state, flags, flow, priority, due, seq, _, _, run, _, _, _, _, _, purge, _, worker =
    unpack_bytes(JobRecord.HEAD, raw)
  local rest, key = read_rest(raw), Interned.flow(flow)
  return {
    id = id,
    lane = key.lane,
    tenant = key.tenant,
    subject = rest.subject,
    priority = priority,
    due_at = due,
    flow = flow,
    state = JobReading.STATES[char(state)],
    seq = seq,
    expires_at = rest.expires_at,
    run = run,
    ticket = rest.ticket,
    ticket_amount = rest.ticket_amount or 0,
    parked_at = rest.parked_at,
    unfit = flags % 8 >= 4,
    worker = worker > 0 and sub(raw, 80, 79 + worker) or nil,
    deadline_at = rest.deadline_at,
    purge_at = purge ~= NONE and purge or nil,
    entry = rest.entry,
    fired_at = rest.fired_at,
    key = rest.key,
  }
end

-- Return the letters of separate values.
function JobReading.far_of(raw)
  local letters = read_rest(raw).far or ''
  if byte(raw, 2) % 128 >= 64 then
    letters = letters .. 'a'
  end
  return letters
end

local EMPTY = {}

-- Unpack what a claim needs of a queued job; its arguments are nil if they are stored separately.
function JobReading.head(raw, id)
  local priority, due, seq, policy, _, run, attempt, blocked =
    unpack_bytes('>I4I6I6I4I6I4I4I6', raw, 7)
  local rest, behind = read_rest(raw)
  return {
    order = { priority = priority, due_at = due, seq = seq },
    id = id,
    keyed = rest.keyed and Codec.unpack_uses(rest.keyed) or EMPTY,
    ticket = rest.ticket,
    candidates = rest.cascade and Cascade.order(rest.cascade) or EMPTY,
    run = run,
    attempt = attempt,
    stage = rest.stage or '',
    subject = rest.subject,
    args = byte(raw, 2) % 128 < 64 and sub(raw, behind, -2) or nil,
    policy = policy,
    blocked_ms = blocked,
  }
end

-- Unpack what the promotion of a scheduled job needs; the entry only of a fire that has not run.
function JobReading.due(raw, id)
  local rest = read_rest(raw)
  return {
    seq = Codec.read6(raw, 17),
    id = id,
    entry = Codec.read4(raw, 33) == 0 and rest.entry or nil,
    due_at = Codec.read6(raw, 11),
  }
end
