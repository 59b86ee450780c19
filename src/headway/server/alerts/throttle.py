"""The throttle: says each thing once, again after a while, and once more when it is over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.server.alerts.alert import AGAIN_MS, Alert, Severity
from headway.server.alerts.remembered import Standing
from headway.server.alerts.rule import Finding, Named

CALM_MS = 30_000
"""What comes and goes is not over before it has been away for so long."""
MOST_SUBJECTS = 50
"""Of one rule at a time; more of them tell people nothing more."""


@dataclass(kw_only=True, slots=True)
class _Standing:
    """Something that was told and is not over.

    Attributes:
        alert: as last told.
        told_at: when, in ms.
        calm_since: since when it is not found any more.
    """

    alert: Alert
    told_at: int
    calm_since: int | None = None


class Throttle:
    """What was told, and when."""

    def __init__(self, runbooks: str) -> None:
        """Has told nothing.

        Args:
            runbooks: what stands before `#` and the rule's name.
        """
        self._runbooks = runbooks
        self._standing: dict[tuple[str, str], _Standing] = {}

    def tell(self, rule: Named, findings: Sequence[Finding], at: int) -> list[Alert]:
        """What is to be told of one rule.

        Args:
            rule: that looked.
            findings: all that it found; what it told of before and does not find now heals.
            at: now, in ms.

        Returns:
            New alerts, those that have stood long enough to be told again, and healed ones.
        """
        told: list[Alert] = []
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
                told.append(alert)
        found = {finding.subject for finding in findings}
        return told + self._healed(rule.name, found, at)

    def standing(self, ahead_ms: int) -> list[Standing]:
        """What was told and is not over, as it is kept.

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
        """Goes on from what another has told, or it in another life; what it knows itself stays.

        Args:
            standing: that; whether it is found is seen at the next look.
            ahead_ms: as above.
        """
        for one in standing:
            alert = Alert(
                rule=one.rule,
                severity=Severity(one.severity),
                subject=one.subject,
                text=one.text,
                runbook=one.runbook,
            )
            told = _Standing(alert=alert, told_at=one.told_at - ahead_ms)
            self._standing.setdefault((one.rule, one.subject), told)

    def forget(self, *, keep: str) -> None:
        """Somebody else alerts from now on.

        Args:
            keep: the rule of which this server tells all the same.
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
