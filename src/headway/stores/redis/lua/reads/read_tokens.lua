-- Tokens: those of some ids, or all.
-- needs: reads.snapshot, tables.tokens
local ReadTokens = {}

function ReadTokens.run(request)
  local reply = Snapshot.new().reply
  reply.tokens = request.ids and Tokens.load(request.ids) or Tokens.all()
  return reply
end
