-- Ids and hashes that are worked out of what they stand for.
-- needs:

local Ids = {}

local format, sub = string.format, string.sub

-- A hash of what two enqueues under one key or id must agree on; 12 bytes.
function Ids.body_hash(kind, lane, tenant, subject, args)
  local head = {}
  -- Each part goes in with its length, so that no two lists of parts run into one text.
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

-- The id of a job that follows from others: the same parts give the same id.
--   parts: an array of texts and whole numbers.
-- Returns a UUID of version 8, in its canonical text.
function Ids.derived_id(parts)
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

-- The ids that a job that follows may have besides, where another has its own: those after a taken
-- one in its series, in their order.
function Ids.ids_after(taken, n)
  local found = {}
  for place = 1, n do
    taken = Ids.derived_id({ 'after', taken })
    found[place] = taken
  end
  return found
end
