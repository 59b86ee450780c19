-- The row of a new job that has nothing but its arguments, as `job_record` packs it.
-- needs:

local PlainRow = {}

local pack, char, byte = struct.pack, string.char, string.byte
-- What stands for no moment; see base/codec.
local NONE = 281474976710655
-- What stands behind the moment of creation of a job that never ran, up to its arguments.
local FRESH = pack('>I4I4I6I6I6I6I6BI2I2I4', 0, 0, 0, 0, NONE, NONE, NONE, 0, 0, 0, 0)
local LETTERS = { waiting = byte('w'), scheduled = byte('s') }

-- Packs the row.
--   place: {flow, policy}, their numbers.
--   args: short enough to stand in the row.
function PlainRow.pack(state, place, priority, due_at, seq, created_at, args)
  local head = pack(
    '>BBI4I4I6I6I4I6',
    LETTERS[state],
    0,
    place.flow,
    priority,
    due_at,
    seq,
    place.policy,
    created_at
  )
  return head .. FRESH .. args .. char(seq % 256)
end
