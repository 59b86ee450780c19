"""Example programs; run them from the project's root."""
