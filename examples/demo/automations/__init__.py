"""Automations: short sessions against git repositories that the demo creates."""
