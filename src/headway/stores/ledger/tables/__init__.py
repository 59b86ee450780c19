"""The tables of a ledger: what a store brings so that the verbs can be told once."""
