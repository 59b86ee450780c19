"""Alert rules: rows that find what is wrong now, what lasts, what grows; their thresholds."""

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
    """How bad it is, P0 the worst."""

    P0 = "P0"
    P1 = "P1"
    P2 = "P2"
    P3 = "P3"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that was sent and is not over.

    Attributes:
        text: as last sent.
        runbook: where it says what to do.
        told_at: when, in ms UTC.
    """

    rule: str
    severity: str
    subject: str
    text: str
    runbook: str
    told_at: int


class Noted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rule has seen; all moments in ms UTC.

    Attributes:
        since: since when something has been so, by subject.
        seen: counts, by label, at the last look; None before the first.
        grown: when each has grown, and by how much.
    """

    since: dict[str, int] = {}
    seen: dict[str, int] | None = None
    grown: dict[str, list[tuple[int, int]]] = {}


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """All that is remembered.

    Attributes:
        standing: alerts that were sent and are not over.
        rules: what those of them have seen that look back, by name.
    """

    standing: list[Standing] = []
    rules: dict[str, Noted] = {}


class AlertStorage(Protocol):
    """Where it is kept, so that it outlives a server: one for all servers of a store.

    Each operation raises StoreError if it cannot be reached.
    """

    async def read(self) -> bytes | None:
        """Return what was written last; None for nothing."""
        ...

    async def take_over(self, holder: str) -> bytes | None:
        """Read, and take over the right to write."""
        ...

    async def write(self, holder: str, value: bytes) -> None:
        """Write; nothing, if another has taken over."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something that is wrong now.

    Attributes:
        subject: what it is about; one that is not found any more has healed.
        text: one sentence with the facts.
    """

    subject: str
    text: str


Seen_contra = TypeVar("Seen_contra", contravariant=True)
"""What a rule looks at."""


class Rule(Protocol[Seen_contra]):
    """Looks for one thing that may be wrong."""

    @property
    def name(self) -> str:
        """Of the rule, and of its runbook."""
        ...

    @property
    def severity(self) -> Severity:
        """The severity of its findings."""
        ...

    def look(self, facts: Seen_contra) -> Sequence[Finding] | None:
        """Return what is wrong now; None if that is unknown."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A rule that looks back. Inside, moments are on the clock of its looks."""

    def noted(self, ahead_ms: int) -> Noted:
        """Return what it has seen, for storage.

        Args:
            ahead_ms: by how much UTC is ahead of the clock of its looks.
        """
        ...

    def recall(self, noted: Noted, standing: Collection[str], ahead_ms: int) -> None:
        """Go on from what another process has seen.

        Args:
            standing: the subjects of its alerts that are not over.
        """
        ...


class Timed(Protocol):
    """What was seen at a moment."""

    @property
    def at(self) -> int:
        """When, in ms on a clock that never goes back."""
        ...


Seen = TypeVar("Seen", bound=Timed)


Texts = Mapping[str, str]
"""What is wrong: by subject, one sentence with the facts."""
Lasting = Mapping[str, Callable[[int], str]]
"""The same, of how long it has lasted, in ms."""


def _findings(texts: Texts) -> Sequence[Finding]:
    return [Finding(subject=subject, text=text) for subject, text in texts.items()]


@dataclass(slots=True)
class Now(Generic[Seen]):
    """Finds what is wrong at one look.

    Attributes:
        name: of the rule, and of its runbook.
        find: what is wrong; None if that is unknown.
    """

    name: str
    severity: Severity
    find: Callable[[Seen], Texts | None]

    def look(self, facts: Seen) -> Sequence[Finding] | None:
        """See `Rule.look`."""
        found = self.find(facts)
        return None if found is None else _findings(found)


@dataclass(slots=True)
class Lasts(Generic[Seen]):
    """Finds what has been wrong for some time.

    Attributes:
        name: of the rule, and of its runbook.
        for_ms: how long it must last.
        find: what is wrong, by subject: a text, made of the ms for which it has been; None if that
            is unknown.
    """

    name: str
    severity: Severity
    for_ms: int
    find: Callable[[Seen], Lasting | None]
    _since: dict[str, int] = field(default_factory=dict[str, int], init=False)

    def look(self, facts: Seen) -> Sequence[Finding] | None:
        """See `Rule.look`."""
        found = self.find(facts)
        if found is None:
            return None
        self._since = {subject: self._since.get(subject, facts.at) for subject in found}
        lasted = {subject: facts.at - since for subject, since in self._since.items()}
        return _findings({one: found[one](ms) for one, ms in lasted.items() if ms >= self.for_ms})

    def noted(self, ahead_ms: int) -> Noted:
        """See `Remembering.noted`."""
        return Noted(since={subject: at + ahead_ms for subject, at in self._since.items()})

    def recall(self, noted: Noted, standing: Collection[str], ahead_ms: int) -> None:
        """See `Remembering.recall`; a duration that was not reported yet starts again."""
        since = noted.since.items()
        self._since = {subject: at - ahead_ms for subject, at in since if subject in standing}


@dataclass(slots=True)
class Grows(Generic[Seen]):
    """Finds counts that have grown too much lately; what they were at the first look is not growth.

    Attributes:
        name: of the rule, and of its runbook.
        within_ms: what grew longer ago is forgotten.
        counts: by label, as they are now; None if that is unknown.
        find: what is wrong, of what has grown.
        seen: the counts of the last look; None before the first.
    """

    name: str
    severity: Severity
    within_ms: int
    counts: Callable[[Seen], Mapping[str, int] | None]
    find: Callable[[Mapping[str, int]], Texts]
    seen: Mapping[str, int] | None = field(default=None, init=False)
    _grown: dict[str, deque[tuple[int, int]]] = field(
        default_factory=dict[str, deque[tuple[int, int]]], init=False
    )

    def look(self, facts: Seen) -> Sequence[Finding] | None:
        """See `Rule.look`."""
        counts = self.counts(facts)
        return None if counts is None else _findings(self.find(self._note(counts, facts.at)))

    def _note(self, counts: Mapping[str, int], at: int) -> dict[str, int]:
        """Return by how much each has grown, without those that have not."""
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

    def noted(self, ahead_ms: int) -> Noted:
        """See `Remembering.noted`."""
        grown = {
            label: [(at + ahead_ms, count) for at, count in each]
            for label, each in self._grown.items()
        }
        return Noted(seen=None if self.seen is None else dict(self.seen), grown=grown)

    def recall(self, noted: Noted, standing: Collection[str], ahead_ms: int) -> None:
        """See `Remembering.recall`; growth since the last evaluation counts at the next one."""
        del standing
        self.seen = noted.seen
        self._grown = {
            label: deque((at - ahead_ms, count) for at, count in each)
            for label, each in noted.grown.items()
        }


class ThresholdTable(OpenTable):
    """Thresholds of rules; a span is ms once it is read, and is written without `_ms`."""

    model_config = ConfigDict(alias_generator=lambda name: name.removesuffix("_ms"))


Share = Annotated[float, Field(strict=True, ge=0, le=1)]
"""A share, from 0 to 1."""
Least = Annotated[int, Field(strict=True, ge=0)]
"""A whole number from 0."""
