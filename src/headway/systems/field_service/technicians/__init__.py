"""Technicians: kept, changed, imported."""
