"""Phone calls and text messages: the protocols of providers, and the providers.

Each provider implements `Voice`, `TextProvider` or both. The class that places a provider's calls
also reads its webhooks, so that one class knows one provider.
"""
