"""What a process saw of the store, and the proof that the store is another or an older one."""

from __future__ import annotations

import os
import socket
from threading import Lock
from typing import NamedTuple

from headway.contract.mending import Suspicion
from headway.core.errors import StoreChanged
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.rows import TrailRow
from headway.stores.ledger.tables.records import TrailTable

MARKED = "store changed"
"""The verb of the trail's line that says why claims are refused."""
_LINES = 100
"""Lines about the store that are searched for it."""


class Sight(NamedTuple):
    """What a process saw of the store.

    Attributes:
        identity: written once, random.
        epoch: raised by an operator's word.
        epoch_at: when that was, by the store's time.
        high_water: the highest time ever used.
    """

    identity: int | str
    epoch: int
    epoch_at: int
    high_water: int

    def fits(self, before: Sight) -> bool:
        """Whether this may follow what was seen before.

        It may after an operator's word (a new epoch, begun later than all that was seen), and
        where the store is the same and no older.
        """
        if self.epoch > 1 and self.epoch_at >= before.high_water:
            return True
        if self.identity != before.identity or self.epoch < before.epoch:
            return False
        return self.epoch > before.epoch or self.high_water >= before.high_water

    def against(self, before: Sight) -> str:
        """Which fact contradicts what was seen before, for people."""
        if self.identity != before.identity:
            return f"its identity is {self.identity}, and {before.identity} was seen before"
        if self.epoch < before.epoch:
            return f"its epoch is {self.epoch}, and {before.epoch} was seen before"
        return (
            f"the highest time it remembers is {self.high_water},"
            f" and {before.high_water} was seen before"
        )


class Watch:
    """Compares facts of the store with those known before they were asked for.

    Several connections of a process ask at once, so replies may be handled in another order than
    the server gave them. Only what was known when a request was sent is surely older than its
    reply: a caller keeps `known` when it sends, and compares the reply with that.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: Sight | None = None
        self._suspect: Sight | None = None
        self._reason = ""

    @property
    def known(self) -> Sight | None:
        """The latest facts that were read or written; None while there were none."""
        return self._known

    @property
    def reason(self) -> str:
        """Why the store is another or an older one than this process knows; empty if it is not."""
        return self._reason

    def may_follow(self, sight: Sight, before: Sight | None) -> bool:
        """Whether facts may be those of the same store, no older.

        Args:
            sight: from a reply.
            before: what was known when its request was sent.
        """
        suspect = self._suspect
        if suspect is not None:
            return sight.epoch > suspect.epoch
        return before is None or sight.fits(before)

    def accept(self, sight: Sight, before: Sight | None) -> None:
        """Remembers facts that may follow, unless later ones are known by now."""
        with self._lock:
            known, suspect = self._known, self._suspect
            if suspect is not None and sight.epoch <= suspect.epoch:
                return
            if known is None or suspect is not None or known == before:
                self._known, self._suspect, self._reason = sight, None, ""
            elif sight.identity == known.identity:
                self._known = max(known, sight, key=lambda one: (one.epoch, one.high_water))

    def suspect(self, sight: Sight, before: Sight | None) -> None:
        """The store is another or an older one; until a later epoch is begun."""
        with self._lock:
            if self._suspect is None and before is not None:
                self._suspect, self._reason = sight, sight.against(before)


def process_name() -> str:
    """This process, as an operator finds it."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def mark_suspect(ledger: Ledger, reason: str) -> None:
    """Writes to the trail who found the store to be another or an older one, and why."""
    line = TrailRow(0, ledger.now, process_name(), reason, MARKED, "store", "claims are refused")
    ledger.trail.add([line])


def suspicion(trail: TrailTable, now: int, reason: str) -> Suspicion:
    """Why claims are refused, as the trail says.

    Args:
        trail: of a store that is suspect.
        now: the store's time, ms.
        reason: of this process, which may not be on the trail yet; empty for none.
    """
    for row in trail.page("store", None, _LINES):
        if row.verb == MARKED:
            return Suspicion(at=row.at, by=row.author, reason=row.reason)
    if reason:
        return Suspicion(at=now, by=process_name(), reason=reason)
    return Suspicion(at=0, by="an unknown process", reason="the trail does not say why any more")


def store_changed(found: Suspicion) -> StoreChanged:
    """The error of a claim in a store that is suspect."""
    return StoreChanged(found.message, hint=f"{found.hint}; nothing was written")
