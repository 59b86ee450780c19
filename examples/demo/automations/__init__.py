"""Automations: short sessions against git repositories that are made on the spot."""
