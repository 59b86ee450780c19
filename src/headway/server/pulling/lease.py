"""Leases of workers over HTTP: how long they may be."""

from __future__ import annotations

from headway.core.errors import InvalidValue

LEASE_MS = 30_000
"""How long a worker's runs live without a beat, if it does not say."""
SHORTEST_LEASE_MS, LONGEST_LEASE_MS = 1_000, 86_400_000


def check_lease(lease_ms: int) -> int:
    """Lets the length of a lease pass.

    Raises:
        InvalidValue: it is too short to be kept, or so long that a dead worker blocks its jobs.
    """
    if not SHORTEST_LEASE_MS <= lease_ms <= LONGEST_LEASE_MS:
        message = f"a lease of {lease_ms} ms"
        raise InvalidValue(message, hint="from 1s to 24h; 30s is usual")
    return lease_ms
