"""Whether the outside world can use the signal URLs that jobs are given."""

from __future__ import annotations

from headway.cli.doctor.finding import Finding, warning, well
from headway.cli.settings import Settings
from headway.contract.store import Store
from headway.contract.views import TokensQuery


async def look_at_signal_urls(store: Store, settings: Settings) -> list[Finding]:
    """Return whether signal URLs lead here, and open without a token.

    Args:
        store: a store with tokens has a server that is not open.
        settings: of the worker and the server.

    Returns:
        What was found; nothing while the store has no token.

    Raises:
        InvalidValue: a signing key is too short.
    """
    if not await store.read(TokensQuery()):
        return []
    found: list[Finding] = []
    if settings.public_url is None:
        hint = 'set public_url = "https://…" in headway.toml, or HEADWAY_PUBLIC_URL'
        found.append(warning("public URL", "none is set: signal URLs lead nowhere outside", hint))
    if not settings.signing_keys:
        hint = "set signing_key, or HEADWAY_SIGNING_KEY, for workers and servers alike"
        found.append(warning("signing key", "none is set: signal URLs need a token", hint))
    return found or [well("signal URLs", f"signed, and lead to {settings.public_url}")]
