"""Migrations of the tables of `calls`; each revision is named by its number."""
