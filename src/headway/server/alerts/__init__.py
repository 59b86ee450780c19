"""Alerts: small rules over facts, told to people, each no more often than they can bear."""
