"""The ledger's tables on PostgreSQL; each statement is in its table's file."""
