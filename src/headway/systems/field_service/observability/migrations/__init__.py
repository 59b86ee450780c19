"""The table of the counts."""
