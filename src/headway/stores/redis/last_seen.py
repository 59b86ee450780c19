"""The store's last known fingerprint, to detect a replaced or restored store."""

from __future__ import annotations

from threading import Lock

from headway.stores.ledger.fingerprint import StoreFingerprint
from headway.stores.redis.replies import CHANGED, MISMATCH, ScriptReply
from headway.stores.redis.values import encode


class LastSeen:
    """The last known identity, epoch and highest time; thread-safe.

    A script receives them, and compares them in the same step; so a reply that was overtaken by
    another never looks like an older store.

    Attributes:
        packed: the fingerprint as scripts read it; empty before the first reply.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._identity: str = ""
        self._epoch = 0
        self._high = 0
        self._suspect: int | None = None
        self.packed = b""

    def learn(self, reply: ScriptReply) -> None:
        """Record the facts of a reply."""
        if reply.status == MISMATCH or not isinstance(reply.identity, str):
            return
        if reply.mismatch or reply.status == CHANGED:
            self._mark_suspect(reply)
        elif (
            reply.high > self._high
            or reply.epoch != self._epoch
            or reply.identity != self._identity
            or self._suspect is not None
        ):
            self._accept(reply, reply.identity)

    def contradiction(self, reply: ScriptReply) -> str:
        """Describe which fact of a reply contradicts the known fingerprint."""
        found = StoreFingerprint(reply.identity, reply.epoch, 0, reply.high)
        return found.against(StoreFingerprint(self._identity, self._epoch, 0, self._high))

    def _mark_suspect(self, reply: ScriptReply) -> None:
        with self._lock:
            # If another process marked the store, this one has not detected anything itself.
            if reply.mismatch and self._suspect is None:
                self._suspect = reply.epoch
                self._pack()

    def _accept(self, reply: ScriptReply, identity: str) -> None:
        with self._lock:
            if self._suspect is not None and reply.epoch <= self._suspect:
                return
            same = identity == self._identity
            if same and reply.epoch < self._epoch:
                # The reply was overtaken by another.
                return
            high = (
                max(reply.high, self._high) if same and reply.epoch == self._epoch else reply.high
            )
            self._identity, self._epoch, self._high = identity, reply.epoch, high
            self._suspect = None
            self._pack()

    def _pack(self) -> None:
        seen = (self._identity, self._epoch, self._high)
        self.packed = encode(seen if self._suspect is None else (*seen, self._suspect))
