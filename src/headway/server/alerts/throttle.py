"""The throttle: says each thing once, again after a while, and once more when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.server.alerts.alert import AGAIN_MS, Alert
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
    """What was told, and when.

    It is kept in memory: after a restart, what still stands is told anew.
    """

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
