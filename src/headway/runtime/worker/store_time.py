"""How late it may be: the moment of a claim, by the store's time, on the worker's own clock."""

from __future__ import annotations

_WINDOW = 30.0


class StoreTime:
    """Bounds the store's moments from below on a clock that never goes back.

    An exchange that was sent at `sent` and answered with the store's time `now` shows that `now`
    was not before `sent`. The tightest such bound of the last half to whole minute is kept, so
    that one slow exchange does not make a job look older than it is.
    """

    def __init__(self) -> None:
        self._since = float("-inf")
        self._newer = float("-inf")
        self._older = float("-inf")

    def heard(self, sent: float, now: int) -> None:
        """Takes note of an exchange.

        Args:
            sent: when it was sent, in seconds on the worker's clock.
            now: the store's time in its answer, in ms.
        """
        if sent - self._since > _WINDOW:
            self._since, self._older, self._newer = sent, self._newer, float("-inf")
        self._newer = max(self._newer, sent - now / 1000)

    def earliest(self, at: int, received: float) -> float:
        """The earliest that a moment of the store can have been.

        Args:
            at: the moment, in ms by the store's time.
            received: when it was certainly past, in seconds on the worker's clock.

        Returns:
            Seconds on the worker's clock.
        """
        return min(at / 1000 + max(self._newer, self._older), received)
