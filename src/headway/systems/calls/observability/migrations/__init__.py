"""The tables of the counts."""
