"""What stands around every request: limits, ids, headers, and the log."""
