-- A job's row as one string: a fixed head, then what has a length of its own.
--
--    1 state     2 flags      3 flow       7 priority  11 due       17 seq       23 policy
--   27 created  33 run       37 attempt   41 blocked   47 request   53 claimed   59 finished
--   65 purge    71 outcome   72 lengths of worker, last worker and rest
--   80 worker, last worker, rest, arguments, and the last byte of the seq once more
--
-- Flow to seq are the bytes by which a waiting job is filed. The rest is a map of the fields that
-- differ from their defaults, packed; most jobs have none. What is long stands apart, so that a
-- start or an end never copies it.
--
-- Lua hashes of a long string only some thirty bytes, the last among them. Rows of one batch are
-- alike but for a few bytes, so one of these stands at the end: without it all would share one
-- hash, and each be compared with all the others (measured at 1,000 a batch: 6 us a row, and
-- 2 us with it).
-- needs: base.codec

local JobRecord = {}

local pack = struct.pack
local byte, char = string.byte, string.char

-- The head, as it is packed and read.
JobRecord.HEAD = '>BBI4I4I6I6I4I6I4I4I6I6I6I6I6BI2I2I4'
local NONE = Codec.NONE
-- Bytes of a value that may stand in the row.
local SHORT = 256

-- Flags: 1 care, 2 gated, 4 unfit, 8 cancel requested, 16 in doubt, 32 it carries a ticket or is
-- parked (so its start changes the rest), 64 its arguments stand apart, 128 it may expire.

JobRecord.LETTERS = {
  scheduled = 's',
  waiting = 'w',
  parked = 'p',
  running = 'r',
  awaiting = 'a',
  succeeded = 'S',
  dead = 'D',
  cancelled = 'C',
}
-- Outcomes that have a number; any other stands in the rest.
local OUTCOMES = { [''] = 0, succeeded = 1 }
local OTHER = 255

-- Fields of the rest and their defaults; nil has none to be compared with.
local PLAIN = {
  'subject', 'stage', 'expires_at', 'key', 'entry', 'fired_at', 'ticket', 'ticket_amount',
  'parked_at', 'parked_since', 'handed_at', 'deadline_at', 'candidate', 'cascade', 'reconciles',
  'reason', 'life', 'body',
}
JobRecord.DEFAULTS = {
  stage = '', ticket_amount = 0, parked_since = 0, candidate = '', reconciles = 0, reason = '',
  life = 1, body = '',
}
-- Values that stand apart where they are long, each under its letter.
local FAR = { { 'result', 'r' }, { 'progress', 'p' }, { 'error', 'e' } }

-- The flags of a row, but for what stands apart.
local function flags_of(row)
  return (row.care and 1 or 0)
    + (row.gated and 2 or 0)
    + (row.unfit and 4 or 0)
    + (row.cancel_requested and 8 or 0)
    + (row.in_doubt and 16 or 0)
    + ((row.ticket or row.parked_at) and 32 or 0)
    + (row.expires_at and 128 or 0)
end

-- Puts result, progress and error into the rest, or apart where they are long.
local function place_values(row, rest, far)
  local letters = ''
  for _, one in ipairs(FAR) do
    local field, letter = one[1], one[2]
    local value = row[field]
    if value and (value ~= '' or field ~= 'error') then
      if #value > SHORT then
        far = far or {}
        far[letter] = value
        letters = letters .. letter
      else
        rest[field] = value
      end
    end
  end
  if letters ~= '' then
    rest.far = letters
  end
  return far
end

-- The rest, packed, and the values that stand apart by letter (nil for none).
local function pack_rest(row, outcome, far)
  local rest, defaults = {}, JobRecord.DEFAULTS
  for place = 1, #PLAIN do
    local field = PLAIN[place]
    local value = row[field]
    if value ~= nil and value ~= defaults[field] then
      rest[field] = value
    end
  end
  if row.keyed and row.keyed[1] then
    rest.keyed = Codec.pack_uses(row.keyed)
  end
  if row.members and next(row.members) ~= nil then
    rest.members = row.members
  end
  if outcome == OTHER then
    rest.outcome = row.outcome
  end
  far = place_values(row, rest, far)
  return next(rest) == nil and '' or cmsgpack.pack(rest), far
end

-- What stands between the moment of creation and the rest of a job that never ran.
local FRESH = pack('>I4I4I6I6I6I6I6BI2I2', 0, 0, 0, 0, NONE, NONE, NONE, 0, 0, 0)

-- Whether a new job has none of what stands in the rest.
local function is_bare(row)
  return not (
    row.subject
    or row.expires_at
    or row.key
    or row.entry
    or row.fired_at
    or row.cascade
    or row.keyed[1]
    or row.stage ~= ''
  )
end

-- Packs a new job that waits or is scheduled, and so never ran; as `pack`.
function JobRecord.pack_queued(row)
  local flags, args, rest, far = row.care and 1 or 0, row.args, '', nil
  if #args > SHORT then
    far, flags, args = { a = args }, flags + 64, ''
  end
  if not is_bare(row) then
    flags = flags + (row.expires_at and 128 or 0)
    rest, far = pack_rest(row, 0, far)
  end
  local head = pack(
    '>BBI4I4I6I6I4I6',
    byte(JobRecord.LETTERS[row.state]),
    flags,
    row.flow,
    row.priority,
    row.due_at,
    row.seq,
    row.policy,
    row.created_at
  )
  return head .. FRESH .. pack('>I4', #rest) .. rest .. args .. char(row.seq % 256), far
end

-- Packs a row.
--   row: by the names of JobRow; absent fields have their defaults.
-- Returns the string, and what stands apart by letter; nil for nothing.
function JobRecord.pack(row)
  local flags, far, args = flags_of(row), nil, row.args
  if #args > SHORT then
    far, flags, args = { a = args }, flags + 64, ''
  end
  local outcome = OUTCOMES[row.outcome or ''] or OTHER
  local rest
  rest, far = pack_rest(row, outcome, far)
  local worker, last = row.worker or '', row.last_worker or ''
  local head = pack(
    JobRecord.HEAD,
    byte(JobRecord.LETTERS[row.state]),
    flags,
    row.flow,
    row.priority,
    row.due_at,
    row.seq,
    row.policy,
    row.created_at,
    row.run or 0,
    row.attempt or 0,
    row.blocked_ms or 0,
    row.request or 0,
    row.claimed_at or NONE,
    row.finished_at or NONE,
    row.purge_at or NONE,
    outcome,
    #worker,
    #last,
    #rest
  )
  return head .. worker .. last .. rest .. args .. char(row.seq % 256), far
end
