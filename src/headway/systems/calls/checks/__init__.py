"""Pre-checks: what is asked before a lead may be called, each behind one protocol."""
