"""Webhooks of providers: each is proved by the provider's own signature, and becomes signals."""
