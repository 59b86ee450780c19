"""The tables of the ledger on SQLite; each file has its table's statements."""
