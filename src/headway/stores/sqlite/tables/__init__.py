"""The tables of the ledger, on SQLite; every statement stands in its table's file."""
