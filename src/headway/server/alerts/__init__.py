"""Alerts: rules over facts, sent to operators, and throttled."""
