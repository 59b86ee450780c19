"""The tables of the ledger, on PostgreSQL; every statement stands in its table's file."""
