"""Queries, each answered from one snapshot."""
