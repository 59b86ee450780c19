"""Migrations of the tables of `notifications`; each revision is named by its number."""
