-- A job's row as one string: a fixed head, then the fields of variable length.
--
--    1 state     2 flags      3 flow       7 priority  11 due       17 seq       23 policy
--   27 created  33 run       37 attempt   41 blocked   47 request   53 claimed   59 finished
--   65 purge    71 outcome   72 lengths of worker, last worker and rest
--   80 worker, last worker, rest, arguments, and the last byte of the seq again
--
-- Flow to seq are the bytes by which a waiting job is filed. The rest is a packed map of fields
-- that differ from their defaults; most jobs have none. Long values are stored separately, so that
-- a start or an end never copies them.
--
-- Lua hashes only some thirty bytes of a long string, including the last. Rows of one batch differ
-- in a few bytes only, so one of these is at the end: without it all rows would have the same hash,
-- and each would be compared with all others (measured with 1,000 per batch: 6 us per row, and 2 us
-- with it).
-- needs: base.codec

local JobRecord = {}

local pack = struct.pack
local byte, char = string.byte, string.char

-- The format of the head.
JobRecord.HEAD = '>BBI4I4I6I6I4I6I4I4I6I6I6I6I6BI2I2I4'
local NONE = Codec.NONE
-- Maximum bytes of a value within the row.
local SHORT = 256

-- Flags: 1 care, 2 gated, 4 unfit, 8 cancel requested, 16 in doubt, 32 has a ticket or is parked
-- (so its start changes the rest), 64 arguments are separate, 128 may expire.

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
-- Outcomes that have a number; others are in the rest.
local OUTCOMES = { [''] = 0, succeeded = 1 }
local OTHER = 255

-- Fields of the rest and their defaults; nil if absent here.
local PLAIN = {
  'subject', 'stage', 'expires_at', 'key', 'entry', 'fired_at', 'ticket', 'ticket_amount',
  'parked_at', 'parked_since', 'handed_at', 'deadline_at', 'candidate', 'cascade', 'reconciles',
  'reason', 'life', 'body',
}
JobRecord.DEFAULTS = {
  stage = '', ticket_amount = 0, parked_since = 0, candidate = '', reconciles = 0, reason = '',
  life = 1, body = '',
}
-- Values that are stored separately if they are long, each with its letter.
local FAR = { { 'result', 'r' }, { 'progress', 'p' }, { 'error', 'e' } }

-- Return the flags of a row, without that of separate arguments.
local function flags_of(row)
  return (row.care and 1 or 0)
    + (row.gated and 2 or 0)
    + (row.unfit and 4 or 0)
    + (row.cancel_requested and 8 or 0)
    + (row.in_doubt and 16 or 0)
    + ((row.ticket or row.parked_at) and 32 or 0)
    + (row.expires_at and 128 or 0)
end

-- Put result, progress and error into the rest, or into `far` if they are long.
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

-- Return the packed rest, and separate values by letter (nil for none).
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

-- The bytes between the time of creation and the size of the rest, of a job that never ran.
local FRESH = pack('>I4I4I6I6I6I6I6BI2I2', 0, 0, 0, 0, NONE, NONE, NONE, 0, 0, 0)

-- Return whether a new job has no rest.
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

-- Pack a new waiting or scheduled job, which never ran, like `pack`.
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

-- Pack a row. Return the string, and separate values by letter; nil for none.
--   row: by the names of JobRow; absent fields have their defaults.
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
