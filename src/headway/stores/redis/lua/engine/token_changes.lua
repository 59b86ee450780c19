-- Changes of tokens: they are set, revoked, and noted as used. What can be no token the client has
-- refused already.
-- needs: base.fail, base.codec, base.time, tables.tokens, engine.records
local TokenChanges = {}

local MAX_TOKENS = 10000

-- Makes a token, or replaces what it is; when it was made and used stays. Returns what goes on the
-- trail, nil when nothing changed.
function TokenChanges.set(item, request)
  local row = Tokens.load({ item.spec.id })[1]
  if row == nil then
    row = { created_at = Time.now, created_by = request.author }
  elseif Records.same(row.spec, item.spec) then
    return nil
  end
  row.spec = item.spec
  Tokens.save({ row })
  return 'set token', item.spec.id, item.said
end

-- Refuses the whole definition if there are now more tokens than there may be.
function TokenChanges.check_number()
  if Tokens.count() > MAX_TOKENS then
    Fail.refuse(
      'InvalidValue',
      'there would be more than ' .. Codec.digits(MAX_TOKENS) .. ' tokens',
      'revoke tokens that are not used'
    )
  end
end

-- Forgets a token. Returns what goes on the trail, nil when nothing changed.
function TokenChanges.revoke(id)
  local row = Tokens.load({ id })[1]
  if row == nil then
    return nil
  end
  Tokens.remove(id)
  return 'revoke token', id, row.spec.name
end

-- Notes when tokens were used, where that is later than what was noted.
--   used: {id, moment} each, an id once.
function TokenChanges.note_use(used)
  local ids, latest, later = {}, {}, {}
  for place, one in ipairs(used) do
    ids[place], latest[one[1]] = one[1], one[2]
  end
  for _, row in ipairs(Tokens.load(ids)) do
    local at = latest[row.spec.id]
    if row.used_at == nil or row.used_at < at then
      row.used_at = at
      later[#later + 1] = row
    end
  end
  Tokens.save(later)
end
