"""How often each caller may ask this server."""

from __future__ import annotations

from collections import OrderedDict

from headway.core.errors import TooManyRequests
from headway.runtime.timing import Timing

MOST_CALLERS = 10_000


class RequestRates:
    """A bucket for each caller: it holds one second's requests, and fills evenly.

    What gates promise of starts is exact; this only keeps one caller from crowding out others.
    """

    def __init__(self, per_second: float | None, timing: Timing) -> None:
        """Makes it.

        Args:
            per_second: requests of one caller; None for any number.
            timing: for the moments.
        """
        self._per_second = per_second
        self._timing = timing
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, name: str) -> None:
        """Counts one request.

        Raises:
            TooManyRequests: the bucket is empty.
        """
        rate = self._per_second
        if rate is None:
            return
        now = self._timing.monotonic()
        full = max(rate, 1.0)
        left, since = self._buckets.pop(caller, (full, now))
        left = min(full, left + (now - since) * rate)
        self._buckets[caller] = (max(left - 1, 0.0) if left >= 1 else left, now)
        if len(self._buckets) > MOST_CALLERS:
            self._buckets.popitem(last=False)
        if left < 1:
            message = f"the token {name!r} asks more than {rate:g} times a second"
            raise TooManyRequests(message, hint="send many jobs in one request; wait a moment")
