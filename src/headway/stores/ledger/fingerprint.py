"""The store's fingerprint as a process last saw it, to detect a replaced or restored store."""

from __future__ import annotations

import os
import socket
from threading import Lock
from typing import NamedTuple

from headway.contract.extensions import Suspicion
from headway.core.errors import StoreChanged
from headway.core.instant import format_instant
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.rows import TrailRow
from headway.stores.ledger.tables import TrailTable

MARKED = "store changed"
"""The verb of the trail's line that records why claims are refused."""
_LINES = 100
"""How many of the trail's lines about the store are searched for it."""


class StoreFingerprint(NamedTuple):
    """Facts that identify a store and its state.

    Attributes:
        identity: random, written once.
        epoch: raised by an operator.
        epoch_at: when the epoch started, in the store's time.
        high_water: the highest time ever used.
    """

    identity: int | str
    epoch: int
    epoch_at: int
    high_water: int

    def fits(self, before: StoreFingerprint) -> bool:
        """Return whether this may be the store that was seen before.

        True if an operator started a new epoch after everything seen so far, or if the identity is
        the same and the store is not older.
        """
        if self.epoch > 1 and self.epoch_at >= before.high_water:
            return True
        if self.identity != before.identity or self.epoch < before.epoch:
            return False
        return self.epoch > before.epoch or self.high_water >= before.high_water

    def against(self, before: StoreFingerprint) -> str:
        """Describe which fact contradicts an earlier fingerprint."""
        if self.identity != before.identity:
            return f"its identity is {self.identity}, and {before.identity} was seen before"
        if self.epoch < before.epoch:
            return f"its epoch is {self.epoch}, and {before.epoch} was seen before"
        return (
            f"the highest time it remembers is {format_instant(self.high_water)},"
            f" and {format_instant(before.high_water)} was seen before"
        )


class FingerprintWatch:
    """Compares fingerprints in replies with the one known when the request was sent.

    A process uses several connections at once, so it may handle replies in another order than the
    server sent them. Only what was known when a request was sent is certainly older than its
    reply. A caller therefore keeps `known` when it sends, and compares the reply with that.

    Attributes:
        known: the latest fingerprint read or written; None before the first.
        reason: why the store was found to be replaced or older; empty if it was not.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.known: StoreFingerprint | None = None
        self._suspect: StoreFingerprint | None = None
        self.reason = ""

    def may_follow(self, found: StoreFingerprint, before: StoreFingerprint | None) -> bool:
        """Return whether a fingerprint may belong to the same store, and is not older.

        Args:
            before: what was known when the request was sent.
        """
        suspect = self._suspect
        if suspect is not None:
            return found.epoch > suspect.epoch
        return before is None or found.fits(before)

    def accept(self, found: StoreFingerprint, before: StoreFingerprint | None) -> None:
        """Remember a fingerprint, unless a later one is already known."""
        with self._lock:
            known, suspect = self.known, self._suspect
            if suspect is not None and found.epoch <= suspect.epoch:
                return
            if known is None or suspect is not None or known == before:
                self.known, self._suspect, self.reason = found, None, ""
            elif found.identity == known.identity:
                before_at = (known.epoch, known.high_water)
                self.known = found if (found.epoch, found.high_water) > before_at else known

    def raised(self, identity: int | str, epoch: int, high_water: int) -> None:
        """Record that a step in this state of the store has raised its high-water mark."""
        with self._lock:
            known = self.known
            if known is not None and (known.identity, known.epoch) == (identity, epoch):
                self.known = known._replace(high_water=max(known.high_water, high_water))

    def suspect(self, found: StoreFingerprint, before: StoreFingerprint | None) -> None:
        """Record that the store was replaced or restored, until a later epoch starts."""
        with self._lock:
            if self._suspect is None and before is not None:
                self._suspect, self.reason = found, found.against(before)


def process_name() -> str:
    """Return the process id and host, for operators."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def mark_suspect(ledger: Ledger, reason: str) -> None:
    """Record on the trail that this process found the store replaced or restored, and why."""
    line = TrailRow(0, ledger.now, process_name(), reason, MARKED, "store", "claims are refused")
    ledger.trail.add([line])


def suspicion(trail: TrailTable, now: int, reason: str) -> Suspicion:
    """Return why claims are refused, from the trail.

    Args:
        reason: this process's own, which may not be on the trail yet; empty if it has none.
    """
    for row in trail.page("store", None, _LINES):
        if row.verb == MARKED:
            return Suspicion(at=row.at, by=row.author, reason=row.reason)
    if reason:
        return Suspicion(at=now, by=process_name(), reason=reason)
    return Suspicion(at=0, by="an unknown process", reason="the trail no longer shows why")


def store_changed(found: Suspicion) -> StoreChanged:
    """Return the error of a claim in a suspect store."""
    return StoreChanged(found.message, hint=f"{found.hint}; nothing was written")
