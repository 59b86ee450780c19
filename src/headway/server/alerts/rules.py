"""Alert rules: rows that find what is wrong now, what lasts, what grows; their thresholds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from headway.core.duration import parse_duration
from headway.core.errors import HeadwayError, InvalidValue, located
from headway.core.naming import did_you_mean


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


class Memory(Protocol):
    """What a rule has seen. Inside, moments are on the clock of its looks."""

    def noted(self, ahead_ms: int) -> Noted:
        """As it is kept.

        Args:
            ahead_ms: by how much UTC is ahead of the clock of its looks.
        """
        ...

    def recall(self, noted: Noted, standing: Collection[str], ahead_ms: int) -> None:
        """Go on from what another, or it in another life, has seen."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A rule that looks back."""

    @property
    def memory(self) -> Memory:
        """What it has seen."""
        ...


class AlertStorage(Protocol):
    """Where it is kept, so that it outlives a server: one for all servers of a store."""

    async def read(self) -> bytes | None:
        """Return what was written last; None for nothing.

        Raises:
            StoreError: it cannot be reached.
        """
        ...

    async def take_over(self, holder: str) -> bytes | None:
        """Read, and take over the right to write.

        Raises:
            StoreError: it cannot be reached.
        """
        ...

    async def write(self, holder: str, value: bytes) -> None:
        """Writes; nothing, if another has taken over.

        Raises:
            StoreError: it cannot be reached.
        """
        ...


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
    """

    @property
    def name(self) -> str:
        """Of the rule, and of its runbook."""
        ...

    @property
    def severity(self) -> Severity:
        """The severity of its findings."""
        ...


class Rule(Named, Protocol[Seen_contra]):
    """Looks for one thing that may be wrong."""

    def look(self, facts: Seen_contra) -> Sequence[Finding] | None:
        """Return what is wrong now; None if that is unknown."""
        ...


class Lasting:
    """Since when something has been so, for rules that wait before they report it.

    Args:
        for_ms: how long it must last.
    """

    def __init__(self, for_ms: int) -> None:
        self._for_ms = for_ms
        self._since: dict[str, int] = {}

    def note(self, subjects: Collection[str], at: int) -> dict[str, int]:
        """Return the ms for which it has been so, by subject, where that is long enough.

        Args:
            subjects: of which it is so now; others are forgotten.
            at: now, in ms.
        """
        self._since = {subject: self._since.get(subject, at) for subject in subjects}
        lasted = {subject: at - since for subject, since in self._since.items()}
        return {subject: ms for subject, ms in lasted.items() if ms >= self._for_ms}

    def noted(self, ahead_ms: int) -> Noted:
        """See `Memory.noted`."""
        return Noted(since={subject: at + ahead_ms for subject, at in self._since.items()})

    def recall(self, noted: Noted, standing: Collection[str], ahead_ms: int) -> None:
        """See `Memory.recall`; a duration that was not reported yet starts again."""
        since = noted.since.items()
        self._since = {subject: at - ahead_ms for subject, at in since if subject in standing}


class Growth:
    """By how much counts have grown lately; what they were at the first look is not growth."""

    def __init__(self, within_ms: int) -> None:
        self._within_ms = within_ms
        self._seen: Mapping[str, int] | None = None
        self._grown: dict[str, deque[tuple[int, int]]] = {}

    def note(self, counts: Mapping[str, int], at: int) -> dict[str, int]:
        """Report by how much each has grown.

        Returns:
            The growth by label, without those that have not grown.
        """
        before, self._seen = self._seen, dict(counts)
        for label, count in counts.items():
            grown = 0 if before is None else count - before.get(label, 0)
            if grown > 0:
                self._grown.setdefault(label, deque()).append((at, grown))
        for label, grown in list(self._grown.items()):
            while grown and at - grown[0][0] > self._within_ms:
                grown.popleft()
            if not grown:
                del self._grown[label]
        return {label: sum(count for _, count in grown) for label, grown in self._grown.items()}

    def noted(self, ahead_ms: int) -> Noted:
        """See `Memory.noted`."""
        grown = {
            label: [(at + ahead_ms, count) for at, count in each]
            for label, each in self._grown.items()
        }
        return Noted(seen=None if self._seen is None else dict(self._seen), grown=grown)

    def recall(self, noted: Noted, standing: Collection[str], ahead_ms: int) -> None:
        """See `Memory.recall`; growth since the last evaluation counts at the next one."""
        del standing
        self._seen = noted.seen
        self._grown = {
            label: deque((at - ahead_ms, count) for at, count in each)
            for label, each in noted.grown.items()
        }


class Timed(Protocol):
    """What was seen at a moment."""

    @property
    def at(self) -> int:
        """When, in ms on a clock that never goes back."""
        ...


SeenAt = TypeVar("SeenAt", bound=Timed)

T = TypeVar("T", bound=Any)

_MS = "_ms"

Texts = Mapping[str, str]
"""What is wrong: by subject, one sentence with the facts."""


def _findings(texts: Texts) -> Sequence[Finding]:
    return [Finding(subject=subject, text=text) for subject, text in texts.items()]


@dataclass(frozen=True, slots=True)
class Now(Generic[SeenAt]):
    """Finds what is wrong at one look.

    Attributes:
        name: of the rule, and of its runbook.
    """

    name: str
    severity: Severity
    find: Callable[[SeenAt], Texts]

    def look(self, facts: SeenAt) -> Sequence[Finding]:
        """See `Rule.look`."""
        return _findings(self.find(facts))


@dataclass(frozen=True, slots=True)
class Lasts(Generic[SeenAt]):
    """Finds what has been wrong for some time.

    Attributes:
        name: of the rule, and of its runbook.
        for_ms: how long it must last.
        find: what is wrong, by subject: a text, made of the ms for which it has been.
    """

    name: str
    severity: Severity
    for_ms: int
    find: Callable[[SeenAt], Mapping[str, Callable[[int], str]]]
    memory: Lasting = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", Lasting(self.for_ms))

    def look(self, facts: SeenAt) -> Sequence[Finding]:
        """See `Rule.look`."""
        found = self.find(facts)
        lasted = self.memory.note(found, facts.at)
        return _findings({one: found[one](ms) for one, ms in lasted.items()})


@dataclass(frozen=True, slots=True)
class Grows(Generic[SeenAt]):
    """Finds counts that have grown too much lately.

    Attributes:
        name: of the rule, and of its runbook.
        within_ms: what grew longer ago is forgotten.
        counts: by label, as they are now.
        find: what is wrong, of what has grown.
    """

    name: str
    severity: Severity
    within_ms: int
    counts: Callable[[SeenAt], Mapping[str, int]]
    find: Callable[[Mapping[str, int]], Texts]
    memory: Growth = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", Growth(self.within_ms))

    def look(self, facts: SeenAt) -> Sequence[Finding]:
        """See `Rule.look`."""
        return _findings(self.find(self.memory.note(self.counts(facts), facts.at)))


def thresholds_of(where: str, model: type[T], given: Mapping[str, object]) -> T:
    """Read a table of thresholds.

    Args:
        where: its place in the settings, such as "calls.alerts".
        model: a dataclass of defaults: a name in `_ms` is a span, a float a share from 0 to 1.
        given: as written: the names of the fields without `_ms`; spans as "2m".

    Returns:
        The values with their defaults.

    Raises:
        InvalidValue: there is no such key, or a value is unusable.
    """
    types = {field.name: field.type for field in fields(model)}
    known = {name.removesuffix(_MS): name for name in types}
    values: dict[str, object] = {}
    for key, value in given.items():
        if key not in known:
            message = f"{where}: there is no setting {key!r:.80}"
            hint = did_you_mean(key, known, f"known: {', '.join(known)}")
            raise InvalidValue(message, hint=hint)
        name = known[key]
        values[name] = _read_threshold(
            f"{where}.{key}", value, span=name.endswith(_MS), sort=str(types[name])
        )
    return model(**values)


def _read_threshold(place: str, value: object, *, span: bool, sort: str) -> object:
    if span:
        with located(f"{place}: ", HeadwayError):
            return parse_duration(value)
    if sort == "str":
        if isinstance(value, str):
            return value
        hint = "the address of a page"
    elif sort == "float":
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        hint = "a share from 0 to 1, such as 0.01"
    else:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        hint = "a whole number from 0"
    message = f"{place} is {value!r:.40}"
    raise InvalidValue(message, hint=hint)
