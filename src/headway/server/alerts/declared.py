"""Rules declared as rows of a table: what is wrong now, what lasts, what grows; thresholds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic, Protocol, TypeVar

from headway.core.duration import parse_duration
from headway.core.errors import HeadwayError, InvalidValue, located
from headway.core.naming import did_you_mean
from headway.server.alerts.alert import Severity
from headway.server.alerts.rule import Finding, Growth, Lasting


class Timed(Protocol):
    """What was seen at a moment."""

    @property
    def at(self) -> int:
        """When, in ms on a clock that never goes back."""
        ...


Seen = TypeVar("Seen", bound=Timed)

T = TypeVar("T", bound=Any)

_MS = "_ms"

Texts = Mapping[str, str]
"""What is wrong: by subject, one sentence with the facts."""


def _findings(texts: Texts) -> Sequence[Finding]:
    return [Finding(subject=subject, text=text) for subject, text in texts.items()]


@dataclass(frozen=True, slots=True)
class Now(Generic[Seen]):
    """Finds what is wrong at one look.

    Attributes:
        name: of the rule, and of its runbook.
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
        for_ms: how long it must last.
        find: what is wrong, by subject: a text, made of the ms for which it has been.
    """

    name: str
    severity: Severity
    for_ms: int
    find: Callable[[Seen], Mapping[str, Callable[[int], str]]]
    memory: Lasting = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", Lasting(self.for_ms))

    def look(self, facts: Seen) -> Sequence[Finding]:
        """See `Rule.look`."""
        found = self.find(facts)
        lasted = self.memory.note(found, facts.at)
        return _findings({one: found[one](ms) for one, ms in lasted.items()})


@dataclass(frozen=True, slots=True)
class Grows(Generic[Seen]):
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
    counts: Callable[[Seen], Mapping[str, int]]
    find: Callable[[Mapping[str, int]], Texts]
    memory: Growth = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", Growth(self.within_ms))

    def look(self, facts: Seen) -> Sequence[Finding]:
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
        values[name] = _read(
            f"{where}.{key}", value, span=name.endswith(_MS), sort=str(types[name])
        )
    return model(**values)


def _read(place: str, value: object, *, span: bool, sort: str) -> object:
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
