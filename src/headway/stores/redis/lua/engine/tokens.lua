-- Set and revoke tokens, and record their use.
-- python: stores.ledger.verbs.define._set_token as set
-- python: stores.ledger.verbs.define._revoke_token as revoke, stores.ledger.verbs.define._note_use
-- needs: base.run, base.codec, base.time, base.python, rules.token_limits
-- needs: tables.declared

local Tokens = {}

-- Create a token, or replace its spec; its times of creation and use stay. Return the trail's line,
-- nil if nothing changed.
function Tokens.set(_, item, request)
  local row = Declared.tokens({ item.spec.id })[1]
  if row == nil then
    row = { created_at = Time.now, created_by = request.author }
  elseif Python.same(row.spec, item.spec) then
    return nil
  end
  row.spec = item.spec
  Declared.save_tokens({ row })
  return { 'set token', item.spec.id, '' }
end

-- Refuse the whole definition if there are now too many tokens.
function Tokens.check_number()
  if Declared.token_count() > TokenLimits.MAX_TOKENS then
    Run.refuse(
      'InvalidValue',
      'there would be more than ' .. Codec.digits(TokenLimits.MAX_TOKENS) .. ' tokens',
      'revoke tokens that are not used'
    )
  end
end

-- Delete a token. Return the trail's line, nil if nothing changed.
function Tokens.revoke(_, item)
  local row = Declared.tokens({ item.id })[1]
  if row == nil then
    return nil
  end
  Declared.remove_token(item.id)
  return { 'revoke token', item.id, row.spec.name }
end

-- Record when tokens were used, if later than before.
--   item: its `used` has {id, time} each, an id once.
function Tokens.note_use(_, item)
  local ids, latest, later = {}, {}, {}
  for place, one in ipairs(item.used) do
    ids[place], latest[one[1]] = one[1], one[2]
  end
  for _, row in ipairs(Declared.tokens(ids)) do
    local at = latest[row.spec.id]
    if row.used_at == nil or row.used_at < at then
      row.used_at = at
      later[#later + 1] = row
    end
  end
  Declared.save_tokens(later)
end
