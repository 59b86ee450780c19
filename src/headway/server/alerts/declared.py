"""Rules declared as rows of a table: what is wrong now, what lasts, what grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from headway.server.alerts.alert import Severity
from headway.server.alerts.growth import Growth
from headway.server.alerts.rule import Finding, Lasting


class Timed(Protocol):
    """What was seen at a moment."""

    @property
    def at(self) -> int:
        """When, in ms on a clock that never goes back."""
        ...


Seen = TypeVar("Seen", bound=Timed)

Texts = Mapping[str, str]
"""What is wrong: by subject, one sentence with the facts."""


def _findings(texts: Texts) -> Sequence[Finding]:
    return [Finding(subject=subject, text=text) for subject, text in texts.items()]


@dataclass(frozen=True, slots=True)
class Now(Generic[Seen]):
    """Finds what is wrong at one look.

    Attributes:
        name: of the rule, and of its runbook.
        severity: of what it finds.
        find: what is wrong.
    """

    name: str
    severity: Severity
    find: Callable[[Seen], Texts]

    def look(self, facts: Seen) -> Sequence[Finding]:
        """See `Rule.look`."""
        return _findings(self.find(facts))


@dataclass(frozen=True, slots=True)
class Lasts(Generic[Seen]):
    """Finds what has been wrong for some time.

    Attributes:
        name: of the rule, and of its runbook.
        severity: of what it finds.
        for_ms: how long it must last.
        find: what is wrong, by subject: a text, made of the ms for which it has been.
        memory: since when.
    """

    name: str
    severity: Severity
    for_ms: int
    find: Callable[[Seen], Mapping[str, Callable[[int], str]]]
    memory: Lasting = field(default_factory=Lasting)

    def look(self, facts: Seen) -> Sequence[Finding]:
        """See `Rule.look`."""
        found = self.find(facts)
        lasted = self.memory.note(list(found), facts.at).items()
        return _findings({one: found[one](ms) for one, ms in lasted if ms >= self.for_ms})


@dataclass(frozen=True, slots=True)
class Grows(Generic[Seen]):
    """Finds counts that have grown too much lately.

    Attributes:
        name: of the rule, and of its runbook.
        severity: of what it finds.
        within_ms: what grew longer ago is forgotten.
        counts: by label, as they are now.
        find: what is wrong, of what has grown.
        memory: of what was seen.
    """

    name: str
    severity: Severity
    within_ms: int
    counts: Callable[[Seen], Mapping[str, int]]
    find: Callable[[Mapping[str, int]], Texts]
    memory: Growth = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", Growth(self.within_ms))

    def look(self, facts: Seen) -> Sequence[Finding]:
        """See `Rule.look`."""
        return _findings(self.find(self.memory.note(self.counts(facts), facts.at)))
