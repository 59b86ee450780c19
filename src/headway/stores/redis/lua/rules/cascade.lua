-- Written by `make lua` from headway.core.cascade: change that.
-- A cascade: a job that is offered to one candidate after another until one accepts.
-- needs: base.python

local Cascade = {}

Cascade.CANDIDATE = '{candidate}'

-- Return the candidates to ask: first the one whose turn was cut short, then the others.
function Cascade.order(self)
  if self.turn ~= '' and Python.find(self.left, self.turn) ~= nil then
    local value = { self.turn }
    local list = {}
    for _, name in ipairs(self.left) do
      if name ~= self.turn then
        list[#list + 1] = name
      end
    end
    return Python.joined(value, list)
  end
  return self.left
end

-- Start a candidate's turn; a crash or release repeats it, never skips it.
function Cascade.begin(self, candidate)
  return { left = self.left, turn = candidate, asked = self.asked }
end

-- End the current turn with an answer; its candidate is not asked again.
function Cascade.end_(self, answer, at, reason)
  local said = { candidate = self.turn, answer = answer, at = at, reason = reason }
  local list = {}
  for _, name in ipairs(self.left) do
    if name ~= self.turn then
      list[#list + 1] = name
    end
  end
  local left = list
  return { left = left, turn = '', asked = Python.joined(self.asked, { said }) }
end

-- The candidate who accepted in the last turn; empty if none did or a new turn started.
function Cascade.accepted(self)
  local last = #self.asked > 0 and self.turn == '' and self.asked[#self.asked] or nil
  return last ~= nil and last.answer == 'accepted' and last.candidate or ''
end

-- Replace the candidates left to ask; the answers given so far stay.
--
-- A turn that was cut short is repeated first if its candidate is among the new ones.
function Cascade.replace_left(self, left)
  local turn = Python.find(left, self.turn) ~= nil and self.turn or ''
  return { left = left, turn = turn, asked = self.asked }
end

-- Return the cascade as it was at the start: asked candidates first, then the others.
function Cascade.reset(self)
  local list = {}
  for at, one in ipairs(self.asked) do
    list[at] = one.candidate
  end
  local asked = Python.unique(list)
  local list2 = {}
  for _, name in ipairs(self.left) do
    if Python.find(asked, name) == nil then
      list2[#list2 + 1] = name
    end
  end
  return { left = Python.joined(asked, list2), turn = '', asked = {} }
end

-- Whether there is no candidate left to ask.
function Cascade.exhausted(self)
  return #self.left == 0
end

-- Return the use of a gate in a candidate's turn.
function Cascade.in_turn(use, candidate)
  if string.find(use.name, Cascade.CANDIDATE, 1, true) == nil then
    return use
  end
  return Python.replace(use, { name = Python.replace_text(use.name, Cascade.CANDIDATE, candidate) })
end
