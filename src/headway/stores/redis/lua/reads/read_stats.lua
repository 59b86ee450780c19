-- Counts of the whole store, and its own facts.
-- needs: reads.snapshot, tables.counts, tables.facts
local ReadStats = {}

function ReadStats.run(_)
  local reply = Snapshot.new().reply
  reply.states = Counts.of_states()
  reply.totals = Counts.totals()
  reply.facts = {
    identity = Facts.identity(),
    epoch = Facts.epoch(),
    revision = Facts.revision(),
    clock_ahead_ms = Facts.clock_ahead_ms(),
  }
  return reply
end
