"""Alert rules: the kinds of rules (`Now`, `Lasts`, `Grows`), their state and thresholds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Generic, Protocol, TypeVar, runtime_checkable

import msgspec
from pydantic import ConfigDict, Field

from headway.runtime.settings_table import OpenTable


class Severity(StrEnum):
    """Severity of an alert; P0 is the highest."""

    P0 = "P0"
    P1 = "P1"
    P2 = "P2"
    P3 = "P3"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A sent alert that has not healed, as stored.

    Attributes:
        text: as last sent.
        sent_at: when it was last sent, in ms UTC.
    """

    rule: str
    severity: str
    subject: str
    text: str
    runbook: str
    sent_at: int = msgspec.field(name="told_at")


class RuleState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a rule, as stored; all times in ms UTC.

    Attributes:
        since: since when the condition has been true, by subject.
        seen: counts at the last check, by label; None before the first check.
        grown: when each count has grown, and by how much, by label.
    """

    since: dict[str, int] = {}
    seen: dict[str, int] | None = None
    grown: dict[str, list[tuple[int, int]]] = {}


class StoredAlerts(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of all alerts.

    Attributes:
        standing: sent alerts that have not healed.
        rules: the state of the rules that have one, by rule name.
    """

    standing: list[Standing] = []
    rules: dict[str, RuleState] = {}


class AlertStorage(Protocol):
    """Storage for the state of alerts, shared by all servers of a store.

    Each operation raises StoreError if the storage cannot be reached.
    """

    async def read(self) -> bytes | None:
        """Return the stored value, if any."""
        ...

    async def take_over(self, holder: str) -> bytes | None:
        """Make `holder` the only one that may write, and return the stored value."""
        ...

    async def write(self, holder: str, value: bytes) -> None:
        """Store a value; do nothing if another holder has taken over."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleFinding:
    """Something that is wrong now.

    Attributes:
        subject: what it is about, such as a lane. When it is no longer found, its alert heals.
        text: one sentence with the facts.
    """

    subject: str
    text: str


Seen_contra = TypeVar("Seen_contra", contravariant=True)
"""The type of facts that a rule evaluates."""


class Rule(Protocol[Seen_contra]):
    """A check for one condition."""

    @property
    def name(self) -> str:
        """The name of the rule and of its runbook."""
        ...

    @property
    def severity(self) -> Severity:
        """The severity of its findings."""
        ...

    def check(self, facts: Seen_contra) -> Sequence[RuleFinding] | None:
        """Return what is wrong now; None if that is unknown."""
        ...


@runtime_checkable
class StatefulRule(Protocol):
    """A rule with state. In memory, its times are on the monotonic clock of the checks."""

    def state(self, ahead_ms: int) -> RuleState:
        """Return the state, for storage.

        Args:
            ahead_ms: UTC minus the clock of the checks.
        """
        ...

    def restore(self, state: RuleState, standing: Collection[str], ahead_ms: int) -> None:
        """Restore the state that another process has stored.

        Args:
            standing: the subjects of the rule's alerts that have not healed.
            ahead_ms: UTC minus the clock of the checks.
        """
        ...


class Timed(Protocol):
    """Facts with the time of their check."""

    @property
    def at(self) -> int:
        """Time of the check, in ms on a monotonic clock."""
        ...


Seen = TypeVar("Seen", bound=Timed)


FindingTexts = Mapping[str, str]
"""Findings: by subject, one sentence with the facts."""
Lasting = Mapping[str, Callable[[int], str]]
"""Findings: by subject, a function from the duration so far in ms to the sentence."""


def _findings(texts: FindingTexts) -> Sequence[RuleFinding]:
    return [RuleFinding(subject=subject, text=text) for subject, text in texts.items()]


@dataclass(slots=True)
class Now(Generic[Seen]):
    """A rule that alerts as soon as its condition is found.

    Attributes:
        find: returns the findings; None if they are unknown.
    """

    name: str
    severity: Severity
    find: Callable[[Seen], FindingTexts | None]

    def check(self, facts: Seen) -> Sequence[RuleFinding] | None:
        found = self.find(facts)
        return None if found is None else _findings(found)


@dataclass(slots=True)
class Lasts(Generic[Seen]):
    """A rule that alerts when its condition has lasted for some time.

    Attributes:
        for_ms: how long the condition must last.
        find: returns the findings; None if they are unknown.
    """

    name: str
    severity: Severity
    for_ms: int
    find: Callable[[Seen], Lasting | None]
    _since: dict[str, int] = field(default_factory=dict[str, int], init=False)

    def check(self, facts: Seen) -> Sequence[RuleFinding] | None:
        found = self.find(facts)
        if found is None:
            return None
        self._since = {subject: self._since.get(subject, facts.at) for subject in found}
        lasted = {subject: facts.at - since for subject, since in self._since.items()}
        return _findings({one: found[one](ms) for one, ms in lasted.items() if ms >= self.for_ms})

    def state(self, ahead_ms: int) -> RuleState:
        return RuleState(since={subject: at + ahead_ms for subject, at in self._since.items()})

    def restore(self, state: RuleState, standing: Collection[str], ahead_ms: int) -> None:
        """See `StatefulRule.restore`; a duration that has not caused an alert starts again."""
        since = state.since.items()
        self._since = {subject: at - ahead_ms for subject, at in since if subject in standing}


@dataclass(slots=True)
class Grows(Generic[Seen]):
    """A rule about counts that have grown recently; the counts at the first check are not growth.

    Attributes:
        within_ms: how long growth counts as recent.
        counts: returns the current counts by label; None if they are unknown.
        find: returns the findings for the recent growth by label.
        seen: the counts at the last check; None before the first.
    """

    name: str
    severity: Severity
    within_ms: int
    counts: Callable[[Seen], Mapping[str, int] | None]
    find: Callable[[Mapping[str, int]], FindingTexts]
    seen: Mapping[str, int] | None = field(default=None, init=False)
    _grown: dict[str, deque[tuple[int, int]]] = field(
        default_factory=dict[str, deque[tuple[int, int]]], init=False
    )

    def check(self, facts: Seen) -> Sequence[RuleFinding] | None:
        counts = self.counts(facts)
        return None if counts is None else _findings(self.find(self._note(counts, facts.at)))

    def _note(self, counts: Mapping[str, int], at: int) -> dict[str, int]:
        """Record the growth, and return the recent growth of each count that has grown."""
        before, self.seen = self.seen, dict(counts)
        for label, count in counts.items():
            grown = 0 if before is None else count - before.get(label, 0)
            if grown > 0:
                self._grown.setdefault(label, deque()).append((at, grown))
        for label, grown in list(self._grown.items()):
            while grown and at - grown[0][0] > self.within_ms:
                grown.popleft()
            if not grown:
                del self._grown[label]
        return {label: sum(count for _, count in grown) for label, grown in self._grown.items()}

    def state(self, ahead_ms: int) -> RuleState:
        grown = {
            label: [(at + ahead_ms, count) for at, count in each]
            for label, each in self._grown.items()
        }
        return RuleState(seen=None if self.seen is None else dict(self.seen), grown=grown)

    def restore(self, state: RuleState, standing: Collection[str], ahead_ms: int) -> None:
        """See `StatefulRule.restore`; growth since the stored check counts at the next check."""
        del standing
        self.seen = state.seen
        self._grown = {
            label: deque((at - ahead_ms, count) for at, count in each)
            for label, each in state.grown.items()
        }


class ThresholdTable(OpenTable):
    """A table of thresholds; durations are written without the suffix `_ms` of their fields."""

    model_config = ConfigDict(alias_generator=lambda name: name.removesuffix("_ms"))


Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Least = Annotated[int, Field(strict=True, ge=0)]
