"""Columns of the SQL stores, and how rows are read from them by position."""
