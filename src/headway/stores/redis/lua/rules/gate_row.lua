-- Written by `make lua` from headway.stores.ledger.gaterows: change that.
-- The ledger's gate rows, and the declared gate that a resolved name belongs to.

local GateRow = {}

GateRow.FOREVER = 253402300800000
