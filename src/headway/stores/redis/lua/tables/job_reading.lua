-- Packed rows of jobs are read: whole, as heads, or as far as a step looks at them.
-- needs: base.codec, tables.interned, tables.job_record

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

-- Fields by the letters under which they stand apart.
JobReading.FIELDS = { a = 'args', r = 'result', p = 'progress', e = 'error' }

-- Outcomes that have a number; any other stands in the rest.
local OUTCOMES = { [0] = '', [1] = 'succeeded' }

-- What the rest of most jobs is; read only.
local NOTHING = {}

-- The rest of a row, and the place behind it.
local function read_rest(raw)
  local worker, last, size = unpack_bytes('>I2I2I4', raw, 72)
  local from = 80 + worker + last
  if size == 0 then
    return NOTHING, from
  end
  return cmsgpack.unpack(sub(raw, from, from + size - 1)), from + size
end

local function bit_of(flags, bit)
  return flags % (2 * bit) >= bit
end

local function moment(at)
  if at == NONE then
    return nil
  end
  return at
end

-- The fields of the head, as they stand in it.
local function unpack_head(raw, id)
  local state, flags, flow, priority, due, seq, policy, created, run, attempt, blocked, request, claimed, finished, purge, _, worker, last =
    unpack_bytes(JobRecord.HEAD, raw)
  local key = Interned.flow(flow)
  return {
    id = id,
    lane = key.lane,
    tenant = key.tenant,
    kind = key.kind,
    priority = priority,
    due_at = due,
    flow = flow,
    policy = policy,
    state = JobReading.STATES[char(state)],
    created_at = created,
    seq = seq,
    care = bit_of(flags, 1),
    gated = bit_of(flags, 2),
    unfit = bit_of(flags, 4),
    cancel_requested = bit_of(flags, 8),
    in_doubt = bit_of(flags, 16),
    run = run,
    attempt = attempt,
    blocked_ms = blocked,
    request = request,
    claimed_at = moment(claimed),
    finished_at = moment(finished),
    purge_at = moment(purge),
    worker = worker > 0 and sub(raw, 80, 79 + worker) or nil,
    last_worker = sub(raw, 80 + worker, 79 + worker + last),
  }
end

-- Unpacks a row.
-- Returns the row, and the letters of what stands apart and is still to be filled in.
function JobReading.unpack(raw, id)
  local row = unpack_head(raw, id)
  local rest, behind = read_rest(raw)
  for field, value in pairs(JobRecord.DEFAULTS) do
    row[field] = value
  end
  row.error = ''
  for field, value in pairs(rest) do
    row[field] = value
  end
  -- A plain end changes the number alone, and leaves the word of an earlier run in the rest.
  row.outcome = OUTCOMES[byte(raw, 71)] or rest.outcome
  row.keyed = rest.keyed and Codec.unpack_uses(rest.keyed) or {}
  row.members = rest.members or {}
  row.far = nil
  local letters = rest.far or ''
  if bit_of(byte(raw, 2), 64) then
    letters = letters .. 'a'
  else
    row.args = sub(raw, behind, -2)
  end
  return row, letters
end

-- The letters of what stands apart.
function JobReading.far_of(raw)
  local letters = read_rest(raw).far or ''
  if bit_of(byte(raw, 2), 64) then
    letters = letters .. 'a'
  end
  return letters
end

local NOBODY = {}

-- Who may be asked now: the one whose turn was cut short first, then the others.
local function order_of(cascade)
  if cascade == nil then
    return NOBODY
  end
  local turn, rest, among = cascade.turn, {}, false
  for _, name in ipairs(cascade.left) do
    if name == turn and turn ~= '' then
      among = true
    else
      rest[#rest + 1] = name
    end
  end
  if among then
    table.insert(rest, 1, turn)
  end
  return rest
end

-- A queued job, as far as a claim looks at it; its arguments are nil if they stand apart.
function JobReading.head(raw, id)
  local priority, due, seq, policy, _, run, attempt, blocked =
    unpack_bytes('>I4I6I6I4I6I4I4I6', raw, 7)
  local rest, behind = read_rest(raw)
  return {
    order = { priority = priority, due_at = due, seq = seq },
    id = id,
    keyed = rest.keyed and Codec.unpack_uses(rest.keyed) or NOBODY,
    ticket = rest.ticket,
    candidates = order_of(rest.cascade),
    run = run,
    attempt = attempt,
    stage = rest.stage or '',
    subject = rest.subject,
    args = byte(raw, 2) % 128 < 64 and sub(raw, behind, -2) or nil,
    policy = policy,
    blocked_ms = blocked,
  }
end

-- A scheduled job, as far as its promotion looks at it.
function JobReading.due(raw, id)
  local rest = read_rest(raw)
  return {
    seq = Codec.read6(raw, 17),
    id = id,
    entry = rest.entry,
    fired_at = rest.fired_at,
  }
end
