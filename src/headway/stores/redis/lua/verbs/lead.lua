-- Lead: one holder at a time does the chores with outside effects, by terms.
-- needs: base.time, base.write, tables.facts
local Lead = {}

-- Makes or keeps the holder the leader of a role. Returns its term, or false while another leads.
function Lead.run(request)
  local current = Facts.leader(request.role)
  local term = 1
  if current ~= nil then
    term = current.term
    if current.holder ~= request.holder or current.until_at <= Time.now then
      if current.until_at > Time.now then
        return false
      end
      -- Also for the same holder: others may have led meanwhile, for all it knows.
      term = term + 1
    end
  end
  Write.freely()
  Time.keep()
  Facts.set_leader(request.role, request.holder, term, Time.now + request.lease_ms)
  return term
end
