"""The ledger's tables on SQLite; each file also has the statements of its tables."""
