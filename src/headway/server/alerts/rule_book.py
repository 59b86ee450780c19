"""A rule book: rules that look at the same things, and whose runbooks stand on one page."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from headway.server.alerts.facts import Facts
from headway.server.alerts.remembered import Noted, Remembered, Remembering
from headway.server.alerts.rule import Finding, Named, Rule

_log = logging.getLogger("headway.alerts")

Seen = TypeVar("Seen")
"""What the rules of a book look at."""

Found = tuple[Named, Sequence[Finding]]
"""A rule, and all that it finds now."""


class Book(Protocol):
    """Rules as those see them who watch, whatever they look at."""

    @property
    def runbooks(self) -> str:
        """What stands before `#` and the rule's name in the link of an alert."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """Of its rules."""
        ...

    def renew(self) -> None:
        """Forgets what the rules have seen: others have alerted meanwhile."""
        ...

    async def look(self, facts: Facts) -> Sequence[Found]:
        """What each rule finds now; without those that cannot tell."""
        ...

    def noted(self, ahead_ms: int) -> dict[str, Noted]:
        """What those of its rules have seen that look back, by name; see `Memory.noted`."""
        ...

    def recall(self, remembered: Remembered, ahead_ms: int) -> None:
        """Lets its rules go on from what others have seen; see `Memory.recall`."""
        ...


class RuleBook(Generic[Seen]):
    """Rules that look at the same things."""

    def __init__(
        self,
        *,
        rules: Callable[[], Sequence[Rule[Seen]]],
        see: Callable[[Facts], Awaitable[Seen | None]],
        runbooks: str,
    ) -> None:
        """Has seen nothing yet.

        Args:
            rules: makes them; anew when others have alerted meanwhile.
            see: what they look at, at a bounded cost; None where that cannot be told. Who watches
                bounds its time, and goes on without these rules if it fails.
            runbooks: what stands before `#` and the rule's name in the link of an alert.
        """
        self._make = rules
        self._rules = rules()
        self._see = see
        self._runbooks = runbooks

    @property
    def runbooks(self) -> str:
        """See `Book.runbooks`."""
        return self._runbooks

    @property
    def names(self) -> Sequence[str]:
        """See `Book.names`."""
        return [rule.name for rule in self._rules]

    def renew(self) -> None:
        """See `Book.renew`."""
        self._rules = self._make()

    def noted(self, ahead_ms: int) -> dict[str, Noted]:
        """See `Book.noted`."""
        return {
            rule.name: rule.memory.noted(ahead_ms)
            for rule in self._rules
            if isinstance(rule, Remembering)
        }

    def recall(self, remembered: Remembered, ahead_ms: int) -> None:
        """See `Book.recall`."""
        for rule in self._rules:
            noted = remembered.rules.get(rule.name)
            if noted is not None and isinstance(rule, Remembering):
                told = {one.subject for one in remembered.standing if one.rule == rule.name}
                rule.memory.recall(noted, told, ahead_ms)

    async def look(self, facts: Facts) -> Sequence[Found]:
        """See `Book.look`."""
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
