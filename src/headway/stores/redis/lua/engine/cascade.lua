-- A cascade: a job that is offered to one candidate after another until one accepts.
-- needs:

local Cascade = {}

-- In a gate's name, it stands for whoever's turn it is.
Cascade.CANDIDATE = '{candidate}'

local function holds(names, name)
  for _, one in ipairs(names) do
    if one == name then
      return true
    end
  end
  return false
end

local function without(names, name)
  local left = {}
  for _, one in ipairs(names) do
    if one ~= name then
      left[#left + 1] = one
    end
  end
  return left
end

-- Who may be asked now: the one whose turn was cut short first, then the others.
function Cascade.order(cascade)
  local turn = cascade.turn
  if turn ~= '' and holds(cascade.left, turn) then
    local names = without(cascade.left, turn)
    table.insert(names, 1, turn)
    return names
  end
  return cascade.left
end

-- The turn of a candidate begins; a crash or release repeats it, never skips it.
function Cascade.begin(cascade, candidate)
  return { left = cascade.left, turn = candidate, asked = cascade.asked }
end

-- The turn ends by a decline, a timeout, an acceptance or a candidate found unfit; the cascade
-- with its cursor moved on.
function Cascade.finish(cascade, answer, at, reason)
  local asked = {}
  for place, one in ipairs(cascade.asked) do
    asked[place] = one
  end
  asked[#asked + 1] =
    { candidate = cascade.turn, answer = answer, at = at, reason = reason or '' }
  return { left = without(cascade.left, cascade.turn), turn = '', asked = asked }
end

-- Who took it last, while no other's turn has begun since; nil if nobody did.
function Cascade.accepted_by(cascade)
  local last = cascade.asked[#cascade.asked]
  if cascade.turn ~= '' or last == nil or last.answer ~= 'accepted' or last.candidate == '' then
    return nil
  end
  return last.candidate
end

-- Others are to be asked from now on; who was asked keeps the record.
function Cascade.replace_left(cascade, left)
  local turn = holds(left, cascade.turn) and cascade.turn or ''
  return { left = left, turn = turn, asked = cascade.asked }
end

-- The cascade as it was before anybody was asked: those asked first, then the others.
function Cascade.begin_anew(cascade)
  local left, known = {}, {}
  local function add(candidate)
    if not known[candidate] then
      known[candidate] = true
      left[#left + 1] = candidate
    end
  end
  for _, one in ipairs(cascade.asked) do
    add(one.candidate)
  end
  for _, candidate in ipairs(cascade.left) do
    add(candidate)
  end
  return { left = left, turn = '', asked = {} }
end

-- Whether a candidate took a job, and it awaits its end.
function Cascade.is_accepted(row)
  return row.state == 'awaiting' and row.cascade ~= nil and Cascade.accepted_by(row.cascade) ~= nil
end

-- Whether nobody is left to ask.
function Cascade.is_exhausted(cascade)
  return #cascade.left == 0
end

-- The use of a gate in a candidate's turn (empty outside cascades), its name filled in; the same
-- one where there is nothing to fill in.
function Cascade.in_turn(use, candidate)
  if not string.find(use.name, Cascade.CANDIDATE, 1, true) then
    return use
  end
  local turn = {}
  for field, value in pairs(use) do
    turn[field] = value
  end
  -- A function, because a `%` in a replacement's text would be read.
  turn.name = string.gsub(use.name, Cascade.CANDIDATE, function()
    return candidate
  end)
  return turn
end
