"""A rule: what it looks for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from headway.server.alerts.alert import Severity
from headway.server.alerts.remembered import Noted

Seen_contra = TypeVar("Seen_contra", contravariant=True)
"""What a rule looks at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something that is wrong now.

    Attributes:
        subject: what it is about; one that is not found any more has healed.
        text: one sentence with the facts.
    """

    subject: str
    text: str


class Named(Protocol):
    """What a rule is called, and how bad it is what it finds.

    Attributes:
        name: of the rule, and of its runbook.
        severity: of what it finds.
    """

    @property
    def name(self) -> str:
        """Of the rule, and of its runbook."""
        ...

    @property
    def severity(self) -> Severity:
        """Of what it finds."""
        ...


class Rule(Named, Protocol[Seen_contra]):
    """Looks for one thing that may be wrong."""

    def look(self, facts: Seen_contra) -> Sequence[Finding] | None:
        """What is wrong now; None where that cannot be told."""
        ...


class Lasting:
    """Since when something has been so, for rules that wait before they speak."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def note(self, subjects: Sequence[str], at: int) -> dict[str, int]:
        """Says for how long each has been so.

        Args:
            subjects: of which it is so now; others are forgotten.
            at: now, in ms.

        Returns:
            The ms since it was first seen to be so, by subject.
        """
        self._since = {subject: self._since.get(subject, at) for subject in subjects}
        return {subject: at - since for subject, since in self._since.items()}

    def noted(self, ahead_ms: int) -> Noted:
        """See `Memory.noted`."""
        return Noted(since={subject: at + ahead_ms for subject, at in self._since.items()})

    def recall(self, noted: Noted, standing: Collection[str], ahead_ms: int) -> None:
        """See `Memory.recall`; what was not told yet must last anew, for nobody has looked."""
        since = noted.since.items()
        self._since = {subject: at - ahead_ms for subject, at in since if subject in standing}
