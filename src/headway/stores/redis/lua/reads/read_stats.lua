-- Counts of the whole store, and its own facts.
-- needs: reads.look, tables.counts, tables.facts
local ReadStats = {}

function ReadStats.run(_)
  local told = Look.new().told
  told.states = Counts.of_states()
  told.totals = Counts.totals()
  told.facts = {
    identity = Facts.identity(),
    epoch = Facts.epoch(),
    revision = Facts.revision(),
    clock_ahead_ms = Facts.clock_ahead_ms(),
  }
  return told
end
