"""Traces: each job is one trace, from its enqueue through its claims to its end."""
