"""The alert watcher: evaluates the rules periodically, and sends throttled alerts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol
from uuid import uuid4

import msgspec
import structlog

from headway.contract.extensions import Repairable
from headway.contract.store import Store
from headway.core.errors import (
    HeadwayError,
    StoreChanged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from headway.runtime.latency import lane_latencies
from headway.runtime.timing import Timing
from headway.server.alerts.engine import STORE_AWAY
from headway.server.alerts.rule_set import Alerts, AnyRuleSet, Facts, RuleFindings
from headway.server.alerts.rules import (
    AlertStorage,
    Rule,
    RuleFinding,
    Severity,
    Standing,
    StoredAlerts,
)
from headway.server.overview import read_overview

MINUTE_MS = 60_000

AGAIN_MS = {
    Severity.P0: 5 * MINUTE_MS,
    Severity.P1: 30 * MINUTE_MS,
    Severity.P2: 15 * MINUTE_MS,
    Severity.P3: 15 * MINUTE_MS,
}
"""How long after an alert it is repeated, if its condition is still found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alert:
    """A notification that something is wrong, or has healed.

    Attributes:
        subject: what it is about, such as a lane.
        text: one sentence with the facts.
    """

    rule: str
    severity: Severity
    subject: str
    text: str
    runbook: str
    healed: bool = False

    @property
    def is_bad(self) -> bool:
        """Whether it is urgent: P0 or P1."""
        return self.severity in {Severity.P0, Severity.P1}

    @property
    def title(self) -> str:
        """One line, such as the subject of a mail."""
        state = "healed" if self.healed else self.severity
        return f"[{state}] {self.rule}: {self.subject}"


_alert_log = structlog.stdlib.get_logger("headway.alerts")


DRAIN_S = 10.0
"""Maximum time that an exiting process waits for its alerts to be sent."""


class AlertSink(Protocol):
    """A destination of alerts."""

    def send(self, alert: Alert) -> None:
        """Accept an alert; return at once, and never raise."""
        ...

    def close(self, drain_s: float = DRAIN_S) -> None:
        """Stop; drop the alerts that are not sent within `drain_s`."""
        ...


class LogSink:
    """Writes alerts to the log."""

    def send(self, alert: Alert) -> None:
        """Log the alert at a level for its severity."""
        log = _alert_log.error if alert.is_bad else _alert_log.warning
        log = _alert_log.info if alert.healed else log
        log("alert", **{**asdict(alert), "severity": alert.severity.value})

    def close(self, drain_s: float = DRAIN_S) -> None:
        """Do nothing: the log has every alert."""


CALM_MS = 30_000
"""How long a subject must not be found before its alert heals, so that alerts do not flap."""
MOST_SUBJECTS = 50
"""Maximum number of findings of a rule that cause alerts; more would add no information."""


@dataclass(kw_only=True, slots=True)
class _Standing:
    """A sent alert that has not healed; times are on the clock of the checks.

    Attributes:
        alert: as last sent.
        sent_at: when it was last sent, in ms.
        calm_since: since when its subject has not been found; None if it was at the last check.
    """

    alert: Alert
    sent_at: int
    calm_since: int | None = None


class AlertThrottle:
    """Decides which alerts to send, from those already sent."""

    def __init__(self, runbooks: str) -> None:
        """Start without alerts.

        Args:
            runbooks: the part of an alert's link before `#` and the rule's name.
        """
        self._runbooks = runbooks
        self._standing: dict[tuple[str, str], _Standing] = {}

    def update(self, rule: Rule[Any], findings: Sequence[RuleFinding], at: int) -> list[Alert]:
        """Return the alerts of a rule to send: new, repeated and healed ones."""
        due: list[Alert] = []
        for place, finding in enumerate(findings):
            standing = self._standing.get((rule.name, finding.subject))
            if standing is None and place >= MOST_SUBJECTS:
                continue
            alert = Alert(
                rule=rule.name,
                severity=rule.severity,
                subject=finding.subject,
                text=finding.text,
                runbook=f"{self._runbooks}#{rule.name}",
            )
            if standing is not None:
                standing.calm_since = None
            if standing is None or at - standing.sent_at >= AGAIN_MS[rule.severity]:
                self._standing[rule.name, finding.subject] = _Standing(alert=alert, sent_at=at)
                due.append(alert)
        found = {finding.subject for finding in findings}
        return due + self._healed(rule.name, found, at)

    def standing(self, ahead_ms: int) -> list[Standing]:
        """Return the alerts that have not healed, for storage."""
        found: list[Standing] = []
        for one in self._standing.values():
            fields = asdict(one.alert)
            del fields["healed"]
            found.append(Standing(**fields, sent_at=one.sent_at + ahead_ms))
        return found

    def restore(self, standing: Iterable[Standing], ahead_ms: int) -> None:
        """Add the stored alerts of another process, and keep this server's own.

        Args:
            standing: whether their subjects are still found is decided at the next check.
        """
        for one in standing:
            fields: dict[str, Any] = msgspec.structs.asdict(one)
            sent_at = fields.pop("sent_at") - ahead_ms
            fields["severity"] = Severity(one.severity)
            restored = _Standing(alert=Alert(**fields), sent_at=sent_at)
            self._standing.setdefault((one.rule, one.subject), restored)

    def forget(self, *, keep: str) -> None:
        """Drop all alerts, because another server has become the leader.

        Args:
            keep: the rule whose alerts this server continues to send.
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
                text = f"over: {standing.alert.text}"
                healed.append(replace(standing.alert, text=text, healed=True))
        return healed


STORAGE_PATIENCE_S = 5.0
"""Timeout of the alert storage; each check uses it at most twice."""

_decode_state = msgspec.json.Decoder(StoredAlerts).decode
_log = logging.getLogger("headway.alerts")


class AlertStateKeeper:
    """Stores the state of a server's alerts, so that the next leader can restore it.

    While the storage is unavailable alerts are still sent, and stored ones may be sent again.
    """

    def __init__(
        self,
        storage: AlertStorage,
        holder: str,
        timing: Timing,
        alerts: Alerts,
        rule_sets: Sequence[tuple[AnyRuleSet, AlertThrottle]],
    ) -> None:
        """Start without reading anything.

        Args:
            holder: unique id of this server process.
            timing: the difference between UTC and the monotonic clock is taken once, now.
            alerts: for its disabled rules.
        """
        self._storage = storage
        self._holder = holder
        self._timing = timing
        self._alerts = alerts
        self._rule_sets = rule_sets
        self._ahead_ms = timing.wall_at() - int(1000 * timing.monotonic())
        self._holds_storage = False
        self._has_checked = False
        self._saw_outage = False
        self._written = b""

    async def restore_before_check(self, *, leads: bool, away: bool) -> None:
        """Restore the stored state if this server has become the leader, before a check."""
        first, self._has_checked = not self._has_checked, True
        if away:
            if first:
                # No server can become the leader now. The last one may have reported the outage.
                self._restore(await self._read(take=False), only_away=True)
            self._saw_outage = True
        elif leads and not self._holds_storage:
            self._restore(await self._read(take=True), only_away=False)

    def release(self) -> None:
        """Let the next check as the leader restore the state that another server has stored."""
        self._holds_storage = False

    async def store_after_check(self, *, leads: bool) -> None:
        """Store the state after a check, if it has changed.

        Args:
            leads: whether this server is the leader, or was when the store last responded.
        """
        if not (leads and self._holds_storage):
            return
        ahead = self._ahead_ms
        standing = [one for _, throttle in self._rule_sets for one in throttle.standing(ahead)]
        states = {
            name: one
            for rule_set, _ in self._rule_sets
            for name, one in rule_set.states(ahead).items()
        }
        value = msgspec.json.encode(StoredAlerts(standing=standing, rules=states))
        if value == self._written:
            return
        try:
            async with self._timing.limit(STORAGE_PATIENCE_S):
                await self._storage.write(self._holder, value)
        except (StoreError, TimeoutError) as error:
            _log.warning("alerts were not stored: %s", str(error) or "timeout")
        else:
            self._written = value

    async def _read(self, *, take: bool) -> bytes | None:
        try:
            async with self._timing.limit(STORAGE_PATIENCE_S):
                if not take:
                    return await self._storage.read()
                value = await self._storage.take_over(self._holder)
        except (StoreError, TimeoutError) as error:
            _log.warning("stored alerts could not be read: %s", str(error) or "timeout")
            return None
        self._holds_storage, self._written = True, b""
        return value

    def _restore(self, value: bytes | None, *, only_away: bool) -> None:
        if value is None:
            return
        try:
            kept = _decode_state(value)
        except msgspec.DecodeError as error:
            _log.warning("stored alerts could not be decoded: %s", error)
            return
        for rule_set, throttle in self._rule_sets:
            names = set(rule_set.names) - self._alerts.off
            if only_away:
                names &= {STORE_AWAY}
            elif self._saw_outage:
                # This server has reported the outage itself, and also reports its end.
                names -= {STORE_AWAY}
            sent = [one for one in kept.standing if one.rule in names]
            throttle.restore(sent, self._ahead_ms)
            if not only_away:
                rule_set.restore(StoredAlerts(standing=sent, rules=kept.rules), self._ahead_ms)


ROLE = "alerts"
PATIENCE_S = 10.0
"""Timeout for the facts of a check, and again for each rule set."""
TERMS = 3
"""Number of checks the leader may miss before another server takes over."""
MOST_TARGETS = 200
"""Maximum number of lanes whose latency is checked, in order of their names."""


class AlertWatcher:
    """Checks the rules and sends alerts; of all servers of a store, only the leader does so.

    While the store does not respond, no server can become the leader: the last leader reports the
    outage, and the others do after three times as long, because the leader may be down as well.
    """

    def __init__(
        self,
        store: Store,
        timing: Timing,
        *,
        rule_sets: Sequence[AnyRuleSet],
        alerts: Alerts,
        sinks: Sequence[AlertSink],
        each_ms: int,
    ) -> None:
        self._store = store
        self._timing = timing
        self._rule_sets = [(rule_set, AlertThrottle(rule_set.runbooks)) for rule_set in rule_sets]
        self._alerts = alerts
        self._sinks = sinks
        self._each_ms = each_ms
        self._holder = uuid4().hex
        self._keeper = None
        if alerts.storage is not None:
            self._keeper = AlertStateKeeper(
                alerts.storage, self._holder, timing, alerts, self._rule_sets
            )
        self._term: int | None = None
        self._replaced = False
        self._answered_at = self._at()

    async def run(self) -> None:
        """Check periodically until cancelled, then close the sinks.

        The next leader does not send the alerts again that this one has stored as sent.
        """
        try:
            while True:
                try:
                    await self.check()
                except Exception:  # noqa: BLE001  (any bug)
                    # Without the next check there would be no alert any more.
                    self._alerts.leads = False
                    _log.exception("alert check failed")
                await self._timing.pause(self._each_ms / 1000)
        finally:
            await asyncio.gather(*(asyncio.to_thread(sink.close) for sink in self._sinks))

    async def check(self) -> None:
        """Check the rules once, and send the alerts."""
        self._replaced = False
        facts = await self._facts()
        leads = self._term is not None
        self._alerts.leads = leads and facts.fault is None
        refused = isinstance(facts.fault, StoreFull | StoreReadOnly)
        self._alerts.refused = facts.fault if refused else None
        if self._replaced:
            for rule_set, throttle in self._rule_sets:
                throttle.forget(keep=STORE_AWAY)
                rule_set.reset()
        if self._keeper is not None:
            if self._replaced:
                self._keeper.release()
            await self._keeper.restore_before_check(leads=leads, away=facts.fault is not None)
        await self._send_alerts(facts)
        if self._keeper is not None:
            # After sending: a server killed in between sends an alert twice rather than never.
            await self._keeper.store_after_check(leads=leads)

    async def _send_alerts(self, facts: Facts) -> None:
        for rule_set, throttle in self._rule_sets:
            for rule, findings in await self._findings(rule_set, facts):
                if rule.name in self._alerts.off:
                    continue
                for alert in throttle.update(rule, findings, facts.at):
                    for sink in self._sinks:
                        sink.send(alert)

    async def _findings(self, rule_set: AnyRuleSet, facts: Facts) -> Sequence[RuleFindings]:
        """Return the findings of a rule set; empty if its facts cannot be read."""
        try:
            async with self._timing.limit(PATIENCE_S):
                return await rule_set.check(facts)
        except (StoreError, TimeoutError) as error:
            _log.warning(
                "the rules %s could not be evaluated: %s", rule_set.names, str(error) or "timeout"
            )
        except Exception:  # noqa: BLE001  (any bug)
            # A faulty system must not silence the others.
            _log.exception("the rules %s could not be evaluated", rule_set.names)
        return ()

    async def _facts(self) -> Facts:
        """Return the current facts; without an overview while another server is the leader."""
        try:
            async with self._timing.limit(PATIENCE_S):
                facts = await self._read_facts()
        except HeadwayError as error:
            return self._outage(error)
        except TimeoutError:
            return self._outage(StoreUnavailable(f"no response within {PATIENCE_S:g} s"))
        self._answered_at = self._at()
        return facts

    async def _read_facts(self) -> Facts:
        # Each rule set may take as long as the facts themselves, and so may the alert storage.
        slow = len(self._rule_sets) + (self._keeper is not None)
        lease_ms = TERMS * self._each_ms + int(1000 * PATIENCE_S) * slow
        before, self._term = self._term, await self._store.lead(ROLE, self._holder, lease_ms)
        # Its own new term, after its lease has ended, follows its former one; a later term shows
        # that another server has led since, while this one was suspended.
        self._replaced = before is not None and (self._term is None or self._term > before + 1)
        if self._term is None:
            return Facts(at=self._at(), leads=False)
        if isinstance(self._store, Repairable):
            found = await self._store.suspicion()
            if found is not None:
                message = f"nothing is claimed: {found.message}"
                raise StoreChanged(message, hint=found.hint)
        overview = await read_overview(self._store)
        latencies = await lane_latencies(self._store, overview.targets[:MOST_TARGETS])
        return Facts(at=self._at(), overview=overview, latencies=latencies)

    def _outage(self, fault: HeadwayError) -> Facts:
        at = self._at()
        return Facts(
            at=at, away_ms=at - self._answered_at, fault=fault, leads=self._term is not None
        )

    def _at(self) -> int:
        return int(1000 * self._timing.monotonic())
