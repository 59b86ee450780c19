"""Standing alerts: throttled, and kept so that they outlive a server."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from headway.core.errors import StoreError
from headway.runtime.timing import Timing
from headway.server.alerts.alert import AGAIN_MS, Alert, Severity
from headway.server.alerts.engine_rules import StoreAway
from headway.server.alerts.rule import AlertStorage, Finding, Named, Remembered, Standing
from headway.server.alerts.rule_book import Alerts, Book

CALM_MS = 30_000
"""What comes and goes is not over before it has been away for so long."""
MOST_SUBJECTS = 50
"""Alerts of one rule at a time; more would add no information."""


@dataclass(kw_only=True, slots=True)
class _Standing:
    """An alert that was sent and is not over.

    Attributes:
        alert: as last sent.
        told_at: when, in ms.
        calm_since: since when it is not found any more.
    """

    alert: Alert
    told_at: int
    calm_since: int | None = None


class AlertThrottle:
    """The sent alerts, and when."""

    def __init__(self, runbooks: str) -> None:
        """Begin without alerts.

        Args:
            runbooks: what stands before `#` and the rule's name.
        """
        self._runbooks = runbooks
        self._standing: dict[tuple[str, str], _Standing] = {}

    def update(self, rule: Named, findings: Sequence[Finding], at: int) -> list[Alert]:
        """Return the alerts of one rule to send.

        Returns:
            New alerts, those that have lasted long enough to be sent again, and healed ones.
        """
        due: list[Alert] = []
        for finding in findings[:MOST_SUBJECTS]:
            alert = Alert(
                rule=rule.name,
                severity=rule.severity,
                subject=finding.subject,
                text=finding.text,
                runbook=f"{self._runbooks}#{rule.name}",
            )
            standing = self._standing.get((rule.name, finding.subject))
            if standing is not None:
                standing.calm_since = None
            if standing is None or at - standing.told_at >= AGAIN_MS[rule.severity]:
                self._standing[rule.name, finding.subject] = _Standing(alert=alert, told_at=at)
                due.append(alert)
        found = {finding.subject for finding in findings}
        return due + self._healed(rule.name, found, at)

    def standing(self, ahead_ms: int) -> list[Standing]:
        """Return the alerts that are not over, for storage.

        Args:
            ahead_ms: by how much UTC is ahead of the clock of the looks.
        """
        return [
            Standing(
                rule=one.alert.rule,
                severity=one.alert.severity,
                subject=one.alert.subject,
                text=one.alert.text,
                runbook=one.alert.runbook,
                told_at=one.told_at + ahead_ms,
            )
            for one in self._standing.values()
        ]

    def recall(self, standing: Iterable[Standing], ahead_ms: int) -> None:
        """Take over stored alerts of another process; its own stay.

        Args:
            standing: that; whether it is found is seen at the next look.
        """
        for one in standing:
            alert = Alert(
                rule=one.rule,
                severity=Severity(one.severity),
                subject=one.subject,
                text=one.text,
                runbook=one.runbook,
            )
            restored = _Standing(alert=alert, told_at=one.told_at - ahead_ms)
            self._standing.setdefault((one.rule, one.subject), restored)

    def forget(self, *, keep: str) -> None:
        """Stop alerting: another process has taken over.

        Args:
            keep: the rule whose alerts this server still sends.
        """
        self._standing = {key: one for key, one in self._standing.items() if key[0] == keep}

    def _healed(self, rule: str, found: set[str], at: int) -> list[Alert]:
        healed: list[Alert] = []
        for key, standing in list(self._standing.items()):
            if key[0] != rule or key[1] in found:
                continue
            if standing.calm_since is None:
                standing.calm_since = at
            elif at - standing.calm_since >= CALM_MS:
                del self._standing[key]
                before = standing.alert
                healed.append(
                    Alert(
                        rule=before.rule,
                        severity=before.severity,
                        subject=before.subject,
                        text=f"over: {before.text}",
                        runbook=before.runbook,
                        healed=True,
                    )
                )
        return healed


PATIENCE_S = 5.0
"""How long the place may take; a look asks it twice at most."""

_decode = msgspec.json.Decoder(Remembered).decode
_log = logging.getLogger("headway.alerts")


class AlertStateKeeper:
    """What one server remembers of alerts, kept for the next one that leads.

    While the place is away alerts are still sent; those that it holds may be sent again.
    """

    def __init__(
        self,
        place: AlertStorage,
        holder: str,
        timing: Timing,
        alerts: Alerts,
        books: Sequence[tuple[Book, AlertThrottle]],
    ) -> None:
        """Have read nothing.

        Args:
            holder: this server's own name, as long as it runs.
            timing: clocks; UTC is as far ahead of the other one as now for as long as it runs.
            alerts: says which rules are off.
            books: each with its throttle.
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
        """Restore the alerts of others, before the rules are evaluated."""
        first, self._looked = not self._looked, True
        if away:
            if first:
                # No process can lead now. The last leader may have reported that the store is away.
                self._recall(await self._read(take=False), only_away=True)
            self._saw_away = True
        elif not leads:
            self._has_it = False
        elif not self._has_it:
            self._recall(await self._read(take=True), only_away=False)

    async def after(self, *, leads: bool) -> None:
        """Store the alerts, if they have changed.

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
            _log.warning("alerts are not stored: %s", error or "timeout")
        else:
            self._written = value

    async def _read(self, *, take: bool) -> bytes | None:
        try:
            async with self._timing.limit(PATIENCE_S):
                if not take:
                    return await self._place.read()
                value = await self._place.take_over(self._holder)
        except (StoreError, TimeoutError) as error:
            _log.warning("stored alerts cannot be read: %s", error or "timeout")
            return None
        self._has_it, self._written = True, b""
        return value

    def _recall(self, value: bytes | None, *, only_away: bool) -> None:
        if value is None:
            return
        try:
            kept = _decode(value)
        except msgspec.DecodeError as error:
            _log.warning("stored alerts cannot be decoded: %s", error)
            return
        for book, throttle in self._books:
            names = set(book.names) - self._alerts.off
            if only_away:
                names &= {StoreAway.name}
            elif self._saw_away:
                # Each server reports by itself that the store is away, and that it is back.
                names -= {StoreAway.name}
            sent = [one for one in kept.standing if one.rule in names]
            throttle.recall(sent, self._ahead_ms)
            if not only_away:
                book.recall(Remembered(standing=sent, rules=kept.rules), self._ahead_ms)
