-- How each job is filed, which depends only on its row: at most one member in each sorted set.
-- needs: base.keys, base.codec, tables.filing

local JobFiling = {}

local n4, n6, name = Codec.n4, Codec.n6, Codec.name
local FINAL = { succeeded = true, dead = true, cancelled = true }

-- Return the member of a gate's ticket.
local function ticket_of(row, order)
  return name(row.ticket) .. order .. n4(row.ticket_amount)
end

local function file_queued(row, found, scores)
  local order = Filing.order(row.flow, row.priority, row.due_at, row.seq)
  if row.state == 'waiting' then
    found[Keys.waiting] = order .. row.id
    if row.ticket then
      found[Keys.tickets] = ticket_of(row, order)
    end
  elseif row.state == 'scheduled' then
    found[Keys.scheduled] = name(row.lane) .. n6(row.due_at) .. n6(row.seq) .. row.id
  elseif row.unfit then
    local gate, amount = name(row.parked_at), row.ticket_amount
    if amount > 0 then
      found[Keys.unfit_by_amount] = gate .. n4(amount) .. n6(row.seq) .. row.id
    else
      found[Keys.unfit] = gate .. n6(row.seq) .. row.id
    end
  else
    found[Keys.parked] = name(row.parked_at) .. order .. row.id
  end
  if row.expires_at and (row.run or 0) == 0 then
    found[Keys.expiry] = n6(row.seq) .. row.id
    scores[Keys.expiry] = row.expires_at
  end
end

local function file_held(row, found, scores)
  found[Keys.held] = name(row.worker or '') .. row.id
  if row.state == 'awaiting' then
    found[Keys.awaiting] = n6(row.seq) .. row.id
    if row.deadline_at then
      found[Keys.deadlines] = n6(row.seq) .. row.id
      scores[Keys.deadlines] = row.deadline_at
    end
  end
end

local function file_final(row, found, scores)
  if row.purge_at then
    found[Keys.purge] = n6(row.seq) .. row.id
    scores[Keys.purge] = row.purge_at
  end
  if row.state ~= 'succeeded' then
    found[Keys.ended_badly] = name(row.state) .. n6(row.seq) .. row.id
  end
end

-- Return how a row is filed: members by key, and their scores, if they have one.
function JobFiling.of(row)
  local found, scores = {}, {}
  local state = row.state
  if FINAL[state] then
    file_final(row, found, scores)
  else
    if state == 'running' or state == 'awaiting' then
      file_held(row, found, scores)
    else
      file_queued(row, found, scores)
    end
    if row.entry then
      found[Keys.fired] = name(row.entry) .. n6(row.fired_at or 0) .. n6(row.seq) .. row.id
    end
  end
  if row.subject then
    found[Keys.subjects] = name(row.tenant) .. name(row.subject) .. n6(row.seq) .. row.id
  end
  return found, scores
end

local NOTHING = {}

-- Refile a row.
--   old, old_scores: how it was filed; nil for a new row.
--   row: the current row; nil if it was deleted.
--   old_flow: the flow in which it waited, if it did.
function JobFiling.move(batch, old, old_scores, old_flow, row)
  local new, scores = NOTHING, NOTHING
  if row then
    new, scores = JobFiling.of(row)
  end
  old, old_scores = old or NOTHING, old_scores or NOTHING
  for key, member in pairs(old) do
    if new[key] ~= member then
      Filing.drop(batch, key, member)
      if key == Keys.waiting then
        batch.left[old_flow] = true
      end
    end
  end
  for key, member in pairs(new) do
    if old[key] ~= member or old_scores[key] ~= scores[key] then
      Filing.add(batch, key, scores[key] or 0, member)
      if key == Keys.waiting then
        batch.filled[row.flow] = true
      end
    end
  end
end
