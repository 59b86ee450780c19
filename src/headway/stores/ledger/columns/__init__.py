"""Rows in columns: which there are, and how they are read by position, for the stores on SQL."""
