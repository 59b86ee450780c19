"""What this process saw of the store last: how it finds that it is another or an older one."""

from __future__ import annotations

from threading import Lock

from headway.stores.ledger import sights
from headway.stores.redis.replies import CHANGED, DOUBTED, Told
from headway.stores.redis.values import encode


class Sight:
    """The identity, the epoch and the highest time that were seen; from any thread.

    A script is sent what was seen before, and finds in the same step whether its store may follow
    that; so a reply that was overtaken by another never looks like an older store.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._identity = ""
        self._epoch = 0
        self._high = 0
        self._suspect: int | None = None
        self._packed = b""

    @property
    def packed(self) -> bytes:
        """As the scripts read it; empty while nothing was seen."""
        return self._packed

    def learn(self, told: Told) -> None:
        """Takes in what a reply says of the store."""
        if told.status == DOUBTED or not isinstance(told.identity, str):
            return
        if told.doubted or told.status == CHANGED:
            self._doubt(told)
        elif (
            told.high > self._high
            or told.epoch != self._epoch
            or told.identity != self._identity
            or self._suspect is not None
        ):
            self._accept(told, told.identity)

    def contradiction(self, told: Told) -> str:
        """Which fact of a reply contradicts what was seen before, for people."""
        found = sights.Sight(told.identity, told.epoch, 0, told.high)
        return found.against(sights.Sight(self._identity, self._epoch, 0, self._high))

    def _doubt(self, told: Told) -> None:
        with self._lock:
            # Another process may have found it; then this one has nothing to suspect by itself.
            if told.doubted and self._suspect is None:
                self._suspect = told.epoch
                self._pack()

    def _accept(self, told: Told, identity: str) -> None:
        with self._lock:
            if self._suspect is not None and told.epoch <= self._suspect:
                return
            same = identity == self._identity
            if same and told.epoch < self._epoch:
                # A reply that was overtaken.
                return
            high = max(told.high, self._high) if same and told.epoch == self._epoch else told.high
            self._identity, self._epoch, self._high = identity, told.epoch, high
            self._suspect = None
            self._pack()

    def _pack(self) -> None:
        seen = (self._identity, self._epoch, self._high)
        self._packed = encode(seen if self._suspect is None else (*seen, self._suspect))
