-- Written by `make lua` from headway.stores.ledger.feeding: change that.
-- Move parked jobs back into their flows when their keyed gate has room.
-- needs: base.time, engine.gate_book, rules.book, rules.gate_view, tables.counts, tables.jobs

local Parked = {}

local REFIT = 1000

-- Reserve for a head that stays parked, or set a timer, so that it is fed eventually.
function Parked.keep_waiting(book, head, gate, ahead)
  local use = Book.use_at(head, gate)
  local view = Book.view(book, use)
  if GateView.is_short_for(view, use.amount) and GateView.reserve(view, head.id, head.order, use.amount) then
    Book.reserve(book, view)
  end
  Parked.arm(book, use, ahead + GateView.kept_from(view, head.order))
end

function Parked.never_fits(book, head, gate)
  local use = Book.use_at(head, gate)
  return GateView.never_fits(Book.view(book, use), use.amount)
end

-- Count jobs that moved from parked to waiting.
function Parked.from_parked(book, lane, n)
  Counts.move(lane, 'parked', 'waiting', n)
  Counts.happened('fed', n)
end

-- Set the timer of a keyed gate that is shut now and will open by itself.
function Parked.arm(book, use, kept)
  local view = Book.view(book, use)
  if GateView.fits(view, use.amount + kept) then
    return
  end
  local at = Book.opens_at(book, view, use.template, math.min(use.amount + kept, view.most))
  if at == nil then
    return
  end
  local row = GateBook.find(book, use.name)
  if row == nil or row.timer_at == nil or row.timer_at > at then
    GateBook.change(book, use.name, use.template).timer_at = at
  end
end

function Parked.run_timer(book, gate)
  local row = GateBook.find(book, gate)
  if row ~= nil then
    row = GateBook.change(book, gate, row.template, row.pool)
    row.timer_at = nil
    if row.closed_until ~= nil and row.closed_until <= Time.now then
      row.closed_until, row.closed_by, row.closed_reason = nil, '', ''
    end
    local kept = row.reserved
    if kept ~= nil and kept.until_at <= Time.now then
      -- A parked job that still needs it reserves it again when the gate is fed.
      row.reserved = nil
    elseif kept ~= nil then
      row.timer_at = kept.until_at
    end
    Book.trim(book, gate)
  end
  Parked.refit(book, gate)
end

-- Put unfit jobs back into the gate's queue if its capacity fits them now.
function Parked.refit(book, gate)
  local ids = Jobs.unfit_at(gate, REFIT)
  if #ids == 0 then
    return
  end
  local back = {}
  local rows = Jobs.load(ids)
  for _, job in ipairs(ids) do
    local row = rows[job]
    local uses = {}
    for _, use in ipairs(row.keyed) do
      if use.name == gate then
        uses[#uses + 1] = use
      end
    end
    if #uses == 0 or not GateView.never_fits(Book.view(book, uses[1]), uses[1].amount) then
      row.unfit = false
      table.insert(back, row)
    end
  end
  Jobs.save(back)
end
