"""The keeper: brings back what was told before a restart, or by who led before, and keeps it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from headway.core.errors import StoreError
from headway.runtime.timing import Timing
from headway.server.alerts.alerts import Alerts
from headway.server.alerts.remembered import Place, Remembered
from headway.server.alerts.rule_book import Book
from headway.server.alerts.rules.store_away import StoreAway
from headway.server.alerts.throttle import Throttle

PATIENCE_S = 5.0
"""How long the place may take; a look asks it twice at most."""

_decode = msgspec.json.Decoder(Remembered).decode
_log = logging.getLogger("headway.alerts")


class Keeper:
    """What one server remembers of alerts, kept for the next one that leads.

    While the place is away alerts are told all the same: what it holds is then told once more.
    """

    def __init__(
        self,
        place: Place,
        holder: str,
        timing: Timing,
        alerts: Alerts,
        books: Sequence[tuple[Book, Throttle]],
    ) -> None:
        """Has read nothing.

        Args:
            place: where it is kept.
            holder: this server's own name, as long as it runs.
            timing: clocks; UTC is as far ahead of the other one as now for as long as it runs.
            alerts: says which rules are off.
            books: with what was told of them.
        """
        self._place = place
        self._holder = holder
        self._timing = timing
        self._alerts = alerts
        self._books = books
        self._ahead_ms = timing.wall_at() - int(1000 * timing.monotonic())
        self._has_it = False
        self._looked = False
        self._saw_away = False
        self._written = b""

    async def before(self, *, leads: bool, away: bool) -> None:
        """Recalls what others have told, before the rules look.

        Args:
            leads: whether this server leads.
            away: whether the store does not answer.
        """
        first, self._looked = not self._looked, True
        if away:
            if first:
                # Nobody can lead now. Who was here before may have told that the store is away.
                self._recall(await self._read(take=False), only_away=True)
            self._saw_away = True
        elif not leads:
            self._has_it = False
        elif not self._has_it:
            self._recall(await self._read(take=True), only_away=False)

    async def after(self, *, leads: bool) -> None:
        """Keeps what was told, if it is another than before.

        Args:
            leads: whether this server leads, or did when the store last answered.
        """
        if not (leads and self._has_it):
            return
        ahead = self._ahead_ms
        standing = [one for _, throttle in self._books for one in throttle.standing(ahead)]
        noted = {name: one for book, _ in self._books for name, one in book.noted(ahead).items()}
        value = msgspec.json.encode(Remembered(standing=standing, rules=noted))
        if value == self._written:
            return
        try:
            async with self._timing.limit(PATIENCE_S):
                await self._place.write(self._holder, value)
        except (StoreError, TimeoutError) as error:
            _log.warning("what was told is not kept: %s", error or "timeout")
        else:
            self._written = value

    async def _read(self, *, take: bool) -> bytes | None:
        try:
            async with self._timing.limit(PATIENCE_S):
                if not take:
                    return await self._place.read()
                value = await self._place.take_over(self._holder)
        except (StoreError, TimeoutError) as error:
            _log.warning("what was told before is not known: %s", error or "timeout")
            return None
        self._has_it, self._written = True, b""
        return value

    def _recall(self, value: bytes | None, *, only_away: bool) -> None:
        if value is None:
            return
        try:
            kept = _decode(value)
        except msgspec.DecodeError as error:
            _log.warning("what was told before is not understood: %s", error)
            return
        for book, throttle in self._books:
            names = set(book.names) - self._alerts.off
            if only_away:
                names &= {StoreAway.name}
            elif self._saw_away:
                # Each server tells by itself that the store is away, and that it is back.
                names -= {StoreAway.name}
            told = [one for one in kept.standing if one.rule in names]
            throttle.recall(told, self._ahead_ms)
            if not only_away:
                book.recall(Remembered(standing=told, rules=kept.rules), self._ahead_ms)
