"""The table of what is remembered of alerts."""
