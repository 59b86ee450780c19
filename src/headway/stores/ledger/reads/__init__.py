"""Queries, each computed from one snapshot."""
