"""Rule sets: groups of alert rules that evaluate the same facts and share a runbook page."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headway.core.errors import HeadwayError, InvalidValue
from headway.runtime.latency import LaneLatency
from headway.server.alerts.rules import (
    AlertStorage,
    Rule,
    RuleFinding,
    RuleState,
    StatefulRule,
    StoredAlerts,
)
from headway.server.overview import Overview


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What the watcher knows at one check.

    Attributes:
        at: time of the check, in ms on a monotonic clock; only differences are meaningful.
        overview: None if the store does not respond, or if another server is the leader.
        latencies: of the lanes with a target; empty without an overview.
        away_ms: how long the store has not responded; 0 if it does.
        leads: whether this server is the leader, or was when the store last responded.
    """

    at: int
    overview: Overview | None = None
    latencies: tuple[LaneLatency, ...] = ()
    away_ms: int = 0
    fault: HeadwayError | None = None
    leads: bool = True


_log = logging.getLogger("headway.alerts")

Seen = TypeVar("Seen")
"""The type of facts that the rules of a rule set evaluate."""

RuleFindings = tuple[Rule[Any], Sequence[RuleFinding]]


class RuleSet(Generic[Seen]):
    """Rules that evaluate the same facts."""

    def __init__(
        self,
        *,
        rules: Callable[[], Sequence[Rule[Seen]]],
        read: Callable[[Facts], Awaitable[Seen | None]],
        runbooks: str,
    ) -> None:
        """Create the rules.

        Args:
            rules: creates the rules; called again when another server has become the leader.
            read: reads the facts at a bounded cost; None if they are unknown. The watcher applies
                a timeout, and skips these rules if it fails.
            runbooks: the part of an alert's link before `#` and the rule's name.
        """
        self._make = rules
        self._rules = rules()
        self._read = read
        self.runbooks = runbooks

    @property
    def names(self) -> Sequence[str]:
        """The names of the rules."""
        return [rule.name for rule in self._rules]

    def reset(self) -> None:
        """Discard the state of the rules, because another server now sends the alerts."""
        self._rules = self._make()

    def states(self, ahead_ms: int) -> dict[str, RuleState]:
        """Return the state of the rules that have one, by rule name."""
        return {
            rule.name: rule.state(ahead_ms)
            for rule in self._rules
            if isinstance(rule, StatefulRule)
        }

    def restore(self, stored: StoredAlerts, ahead_ms: int) -> None:
        """Restore the state of the rules from what another server stored."""
        for rule in self._rules:
            state = stored.rules.get(rule.name)
            if state is not None and isinstance(rule, StatefulRule):
                standing = {one.subject for one in stored.standing if one.rule == rule.name}
                rule.restore(state, standing, ahead_ms)

    async def check(self, facts: Facts) -> Sequence[RuleFindings]:
        """Return the findings of each rule, except rules without enough data."""
        seen = await self._read(facts)
        found: list[RuleFindings] = []
        if seen is None:
            return found
        for rule in self._rules:
            try:
                findings = rule.check(seen)
            except Exception:  # noqa: BLE001  (any bug)
                # A faulty rule must not silence the others.
                _log.exception("alert rule failed name=%s", rule.name)
                continue
            if findings is not None:
                found.append((rule, findings))
        return found


AnyRuleSet = RuleSet[Any]
"""A rule set over any type of facts."""


class Alerts:
    """The alert rules that systems add to a server, and what the rules share.

    Attributes:
        leads: whether this server is the leader, which sends the alerts.
        storage: where sent alerts are stored across restarts; None to keep them in memory only.
        refused: the error with which the store refused the last renewal of the leadership, a write,
            because its device is full or its server is read-only; None if it did not.
    """

    def __init__(self) -> None:
        self.leads = False
        self.refused: HeadwayError | None = None
        self.off: frozenset[str] = frozenset()
        self.storage: AlertStorage | None = None
        self._rule_sets: list[AnyRuleSet] = []

    @property
    def rule_sets(self) -> Sequence[AnyRuleSet]:
        """The rule sets of the systems, in the order in which they were added."""
        return tuple(self._rule_sets)

    def add(self, rule_set: AnyRuleSet) -> None:
        """Add the rules of a system; call this from the system's `start`."""
        check_names((*self._rule_sets, rule_set))
        self._rule_sets.append(rule_set)


def check_names(rule_sets: Iterable[AnyRuleSet], off: Iterable[str] = ()) -> None:
    """Check that rule names are unique, and that all disabled rules exist.

    Raises:
        InvalidValue: two rules have the same name, or a disabled rule does not exist.
    """
    names = [name for rule_set in rule_sets for name in rule_set.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = f"two alert rules are named {twice[0]!r:.80}"
        raise InvalidValue(message, hint="give each rule its own name")
    for name in sorted(set(off).difference(names)):
        message = f"alerts.off: there is no rule {name!r:.80}"
        raise InvalidValue(message, hint=f"the rules are {', '.join(names)}")
