-- When claims found a flow shut by a shared gate last, and open again: a measure of the time that
-- its jobs were held up. One number for a flow; it goes with the flow.
-- needs: base.codec, base.keys, base.time, base.write

local ShutSpells = {}

-- By flow; false for one that was never found shut.
local spells = {}

-- Reads the spells of flows in one go.
function ShutSpells.prefetch(flows)
  local wanted, fields = {}, {}
  for _, flow in ipairs(flows) do
    if spells[flow] == nil then
      spells[flow] = false
      wanted[#wanted + 1] = flow
      fields[#fields + 1] = Codec.n4(flow)
    end
  end
  for place, kept in ipairs(Write.read(Keys.shut, fields)) do
    if kept then
      spells[wanted[place]] = {
        since = Codec.read6(kept, 1),
        until_at = #kept > 6 and Codec.read6(kept, 7) or nil,
      }
    end
  end
end

-- The flow's last spell {since, until_at}, without an end while it is shut; nil for none.
function ShutSpells.of(flow)
  if spells[flow] == nil then
    ShutSpells.prefetch({ flow })
  end
  return spells[flow] or nil
end

local function keep(flow, since, until_at)
  spells[flow] = { since = since, until_at = until_at }
  local kept = Codec.n6(since) .. (until_at and Codec.n6(until_at) or '')
  Write.put(Keys.shut, Codec.n4(flow), kept)
end

-- A claim finds the flow shut.
function ShutSpells.begin(flow)
  local spell = ShutSpells.of(flow)
  if spell == nil or spell.until_at ~= nil then
    keep(flow, Time.now, nil)
  end
end

-- A claim finds the flow open. Those who waited through the spell and start later still count it.
function ShutSpells.finish(flow)
  local spell = ShutSpells.of(flow)
  if spell ~= nil and spell.until_at == nil then
    keep(flow, spell.since, Time.now)
  end
end

-- How much of a stretch of time lies in the flow's last spell, ms.
function ShutSpells.overlap_ms(flow, from, till)
  local spell = ShutSpells.of(flow)
  if spell == nil then
    return 0
  end
  local last = spell.until_at and math.min(spell.until_at, till) or till
  return math.max(0, last - math.max(spell.since, from))
end
