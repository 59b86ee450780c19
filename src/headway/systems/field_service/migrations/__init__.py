"""Migrations of the tables of `field_service`; each revision is named by its number."""
