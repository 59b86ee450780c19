"""Telephone calls and text messages: what systems ask of a provider, and the providers.

Each provider is behind two small protocols, `Voice` and `Texts`. What a provider's webhooks say is
read by the same class that places its calls, so that one file knows one provider.
"""
