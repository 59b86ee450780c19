"""Alerts: rules evaluated over facts, with throttled notifications to operators."""
