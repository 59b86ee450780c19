"""The tables of a ledger, which each store implements."""
