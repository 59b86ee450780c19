"""Declarations of gates, and their use by kinds and jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

from headway.core.errors import InvalidValue
from headway.core.gates.hours import HoursSpec
from headway.core.naming import ALWAYS_KNOWN, check_flag, check_name, placeholders

MAX_CAPACITY = 2**31 - 1

Hold = Literal["settled", "run"]
HOLDS: tuple[Hold, ...] = get_args(Hold)
Strategy = Literal["least_used", "round_robin", "first_free"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


class GateKind(StrEnum):
    """The four kinds of gates."""

    SLOTS = "slots"
    RATE = "rate"
    HOURS = "hours"
    POOL = "pool"

    # As for `State`.
    __hash__ = str.__hash__


@dataclass(frozen=True, kw_only=True, slots=True)
class GateSpec:
    """A gate as declared in code, with an operator's values if there are any.

    Attributes:
        name: fixed name, or a template over a job's arguments.
        shared: whether jobs wait for it in their flow; otherwise each is parked at it by itself.
        capacity: number of permits of a Slots.
        limit: number of starts of a Rate in any window.
        per_ms: window of a Rate.
        members: names and capacities of a Pool's members, in order.
        strategy: how a Pool chooses a member.
        hours: opening hours of an Hours.
    """

    name: str
    kind: GateKind
    shared: bool
    capacity: int | None = None
    limit: int | None = None
    per_ms: int | None = None
    members: tuple[tuple[str, int], ...] = ()
    strategy: Strategy = "least_used"
    hours: HoursSpec | None = None

    def take(self, amount: int | str = 1, *, hold: Hold = "settled") -> GateNeed:
        """Return this gate with the number of permits a job takes, and how long it keeps them.

        Args:
            amount: number of permits (or starts of a Rate), at least 1; or the argument of the job
                that contains it, such as "{tokens}".
            hold: "settled" keeps them while the job awaits a signal; "run" returns them at the
                hand-over.

        Returns:
            The entry for a kind's list of gates.

        Raises:
            InvalidValue: the amount or the hold is not valid, or the amount is an argument and the
                gate is shared.
        """
        if not isinstance(amount, str):
            amount = check_count("amount", amount, least=1)
            return GateNeed(spec=self, amount=amount, hold=_hold(hold))
        fields = placeholders(amount)
        if len(fields) != 1 or amount != f"{{{fields[0]}}}":
            message = f"amount is {amount!r}"
            raise InvalidValue(message, hint="a whole number, or an argument as '{argument}'")
        if self.shared:
            message = f"the gate {self.name!r} is shared, but {amount} differs from job to job"
            raise InvalidValue(
                message, hint="declare it with shared=False: each amount would be a flow of its own"
            )
        return GateNeed(spec=self, argument=fields[0], hold=_hold(hold))


@dataclass(frozen=True, kw_only=True)
class GateTraits:
    """What one kind of gate does, stated in its module; `headway.core.gates.kinds` lists them.

    Attributes:
        declared: returns the fields of a declaration over HTTP, except its kind.
        takes_permits: whether a start takes permits, which are returned later.
        counts_starts: whether a start is counted for the length of a window.
        chooses_member: whether a start takes a member's permits; a pool may have no members.
        settable: the fields of `SetGate` that apply to a declared gate of this kind.
        has_own_limit: whether one instance of a declared gate can have its own limit.
    """

    declared: Callable[[GateSpec], Mapping[str, object]]
    takes_permits: bool = False
    counts_starts: bool = False
    chooses_member: bool = False
    settable: frozenset[str] = frozenset()
    has_own_limit: bool = False

    @property
    def counts(self) -> bool:
        """Whether it counts permits or starts; otherwise it is only open or closed."""
        return self.takes_permits or self.counts_starts


@dataclass(frozen=True, kw_only=True, slots=True)
class GateNeed:
    """A gate that a kind must pass, with the amount it takes there.

    Attributes:
        argument: argument that contains the amount; None if all its jobs take the same.
    """

    spec: GateSpec
    amount: int = 1
    argument: str | None = None
    hold: Hold = "settled"


@dataclass(frozen=True, kw_only=True, slots=True)
class GateUse:
    """A gate that one job must pass, its name resolved.

    Attributes:
        name: resolved name; `{candidate}` is left in it until a cascade's turn.
        template: name under which the gate is declared.
        amount: number of permits or starts that it takes.
        hold: how long it keeps the permits.
        shared: whether the gate is part of the flow.
        zone: resolved IANA time zone of an Hours.
    """

    name: str
    template: str
    amount: int = 1
    hold: Hold = "settled"
    shared: bool = False
    zone: str | None = None


def check_count(what: str, value: object, *, least: int, most: int = MAX_CAPACITY) -> int:
    """Validate a whole number from `least` to `most`, and return it.

    Raises:
        InvalidValue: the value is not such a number.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{what} must be a whole number, not {value!r}"
        raise InvalidValue(message)
    if not least <= value <= most:
        message = f"{what} is {value}"
        raise InvalidValue(message, hint=f"from {least} to {most}")
    return value


IMPLICIT = ("lane:", "tenant:", "kind:")
"""Prefixes of implicit gates' names; the fourth gate is `all`."""


def is_implicit(gate: str) -> bool:
    """Return whether a gate is one of the four that every job passes, declared or not."""
    return gate == "all" or gate.startswith(IMPLICIT)


def implicit_gates(lane: str, tenant: str, kind: str) -> tuple[str, str, str, str]:
    """Return the four gates that every job of this lane, tenant and kind passes."""
    return ("all", f"lane:{lane}", f"tenant:{tenant}", f"kind:{kind}")


def check_gate_name(name: object, *, shared: bool | None) -> tuple[str, bool]:
    """Validate a gate's name; return it, and whether the gate is shared.

    Args:
        shared: the caller's choice; None decides by the placeholders in the name.

    Raises:
        InvalidValue: the name is not valid, or belongs to an implicit gate.
    """
    text = check_name("gate", name)
    fields = placeholders(text)
    if is_implicit(text):
        message = f"the gate name {text!r} belongs to an implicit gate"
        raise InvalidValue(
            message,
            hint="choose another name; change or pause the implicit gate with `headway gates`",
        )
    if shared is None:
        return text, ALWAYS_KNOWN.issuperset(fields)
    return text, check_flag(f"shared of {text!r}", shared)


def _hold(hold: object) -> Hold:
    for known in HOLDS:
        if hold == known:
            return known
    message = f"hold is {hold!r}"
    raise InvalidValue(message, hint="settled or run")
