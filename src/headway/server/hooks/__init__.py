"""Webhooks of providers: verified by the provider's signature, then turned into signals."""
