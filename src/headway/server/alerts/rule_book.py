"""Rule books: rules that evaluate the same facts, and share a page of runbooks."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headway.core.errors import HeadwayError, InvalidValue
from headway.runtime.latency import LaneLatency
from headway.server.alerts.rules import (
    AlertStorage,
    Finding,
    Noted,
    Remembered,
    Remembering,
    Rule,
)
from headway.server.overview import Overview


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is known at one look.

    Attributes:
        at: when, in ms on a clock that never goes back; only differences mean anything.
        overview: what the store looks like; None if it does not answer, or is another's to watch.
        latencies: of lanes with a target; none without an overview.
        away_ms: for how long the store has not answered; 0 if it does.
        leads: whether this server is the one that alerts, or was when the store last answered.
    """

    at: int
    overview: Overview | None = None
    latencies: tuple[LaneLatency, ...] = ()
    away_ms: int = 0
    fault: HeadwayError | None = None
    leads: bool = True


_log = logging.getLogger("headway.alerts")

Seen = TypeVar("Seen")
"""What the rules of a book look at."""

Found = tuple[Rule[Any], Sequence[Finding]]
"""A rule, and all that it finds now."""


class RuleBook(Generic[Seen]):
    """Rules that look at the same things."""

    def __init__(
        self,
        *,
        rules: Callable[[], Sequence[Rule[Seen]]],
        see: Callable[[Facts], Awaitable[Seen | None]],
        runbooks: str,
    ) -> None:
        """Have seen nothing yet.

        Args:
            rules: creates them; called again after another process has sent the alerts.
            see: reads the facts, at a bounded cost; None if they are unknown. The watch
                bounds its time, and goes on without these rules if it fails.
            runbooks: what stands before `#` and the rule's name in the link of an alert.
        """
        self._make = rules
        self._rules = rules()
        self._see = see
        self.runbooks = runbooks

    @property
    def names(self) -> Sequence[str]:
        """Of its rules."""
        return [rule.name for rule in self._rules]

    def renew(self) -> None:
        """Forget what the rules have seen: others have alerted meanwhile."""
        self._rules = self._make()

    def noted(self, ahead_ms: int) -> dict[str, Noted]:
        """Return what those of its rules have seen that look back, by name."""
        return {
            rule.name: rule.noted(ahead_ms) for rule in self._rules if isinstance(rule, Remembering)
        }

    def recall(self, remembered: Remembered, ahead_ms: int) -> None:
        """Let its rules go on from what others have seen."""
        for rule in self._rules:
            noted = remembered.rules.get(rule.name)
            if noted is not None and isinstance(rule, Remembering):
                standing = {one.subject for one in remembered.standing if one.rule == rule.name}
                rule.recall(noted, standing, ahead_ms)

    async def look(self, facts: Facts) -> Sequence[Found]:
        """Return what each rule finds now; rules without enough data are left out."""
        seen = await self._see(facts)
        found: list[Found] = []
        if seen is None:
            return found
        for rule in self._rules:
            try:
                findings = rule.look(seen)
            except Exception:  # noqa: BLE001  (it may be any bug)
                # A rule that is wrong must not silence the others.
                _log.exception("the rule %s failed", rule.name)
                continue
            if findings is not None:
                found.append((rule, findings))
        return found


Book = RuleBook[Any]
"""Rules as those see them who watch, whatever they look at."""


class Alerts:
    """What systems add to the alerts of one server.

    Attributes:
        leads: whether this server is the one of its store that alerts.
        off: names of rules that are switched off.
        place: where sent alerts are kept beyond this server's life; None for nowhere.
    """

    def __init__(self) -> None:
        self.leads = False
        self.off: frozenset[str] = frozenset()
        self.place: AlertStorage | None = None
        self._books: list[Book] = []

    @property
    def books(self) -> Sequence[Book]:
        """Of the systems, in the order in which they were added."""
        return tuple(self._books)

    def add(self, book: Book) -> None:
        """Add rules of a system; its `start` is the moment to do it.

        Raises:
            InvalidValue: a rule of that name is there already.
        """
        check_names((*self._books, book))
        self._books.append(book)


def check_names(books: Iterable[Book], off: Iterable[str] = ()) -> None:
    """Check that rule names are unique, and that only known rules are off.

    Raises:
        InvalidValue: two rules have one name, or one that is off is none.
    """
    names = [name for book in books for name in book.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = f"there are two rules {twice[0]!r:.80}"
        raise InvalidValue(message, hint="give each its own name")
    for name in sorted(set(off).difference(names)):
        message = f"alerts.off: there is no rule {name!r:.80}"
        raise InvalidValue(message, hint=f"there are {', '.join(names)}")
