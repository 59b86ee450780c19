-- Tokens: those of some ids, or all.
-- needs: reads.look, tables.tokens
local ReadTokens = {}

function ReadTokens.run(request)
  local told = Look.new().told
  told.tokens = request.ids and Tokens.load(request.ids) or Tokens.all()
  return told
end
