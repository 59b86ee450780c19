-- Written by `make lua` from headway.stores.ledger.rows: change that.
-- The ledger's rows. Verbs change them in place and save them.
-- needs: rules.cascade

local JobRow = {}

-- Whether a candidate accepted it and it awaits its end.
function JobRow.accepted(self)
  return self.state == 'awaiting' and self.cascade ~= nil and Cascade.accepted(self.cascade) ~= ''
end
