"""Webhooks that systems send: signed, and only to addresses on the open internet."""
