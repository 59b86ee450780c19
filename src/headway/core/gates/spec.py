"""What a gate is declared to be, and what a job needs of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

from headway.core.errors import InvalidValue
from headway.core.gates.hours import HoursSpec
from headway.core.naming import ALWAYS_KNOWN, check_name, placeholders

MAX_CAPACITY = 2**31 - 1

Hold = Literal["settled", "run"]
HOLDS: tuple[Hold, ...] = get_args(Hold)
Strategy = Literal["least_used", "round_robin", "first_free"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


class GateKind(StrEnum):
    """The four limits."""

    SLOTS = "slots"
    RATE = "rate"
    HOURS = "hours"
    POOL = "pool"

    # As of `State`.
    __hash__ = str.__hash__

    @property
    def counts(self) -> bool:
        """Whether it counts permits or starts; one that does not is only open or shut."""
        return self is not GateKind.HOURS


@dataclass(frozen=True, kw_only=True, slots=True)
class GateSpec:
    """A gate as code or an operator declares it, under a name that may be a template.

    Attributes:
        name: fixed, or with placeholders over a job's arguments.
        shared: jobs wait for it in their flow; else each is parked at it by itself.
        capacity: permits of a Slots.
        limit: starts of a Rate in any window.
        per_ms: the window of a Rate.
        members: names and capacities of a Pool's members, in their order.
        strategy: how a Pool chooses.
        hours: when an Hours is open.
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

    def take(self, amount: int = 1, *, hold: Hold = "settled") -> GateNeed:
        """Return this gate with the number of permits a job takes, and how long it keeps them.

        Args:
            amount: number of permits (or starts of a Rate), at least 1.
            hold: "settled" keeps them while the job awaits a signal; "run" returns them at the
                hand-over.

        Returns:
            The entry for a kind's list of gates.

        Raises:
            InvalidValue: the amount or the hold is not valid.
        """
        return GateNeed(spec=self, amount=check_count("amount", amount, least=1), hold=_hold(hold))


@dataclass(frozen=True, kw_only=True, slots=True)
class GateNeed:
    """A gate that a kind must pass, with the amount it takes there."""

    spec: GateSpec
    amount: int = 1
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


def check_count(what: str, value: object, *, least: int) -> int:
    """Accept a whole number from `least` to 2147483647.

    Raises:
        InvalidValue: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{what} must be a whole number, not {value!r}"
        raise InvalidValue(message)
    if not least <= value <= MAX_CAPACITY:
        message = f"{what} is {value}"
        raise InvalidValue(message, hint=f"from {least} to {MAX_CAPACITY}")
    return value


IMPLICIT = ("lane:", "tenant:", "kind:")
"""How the names of implicit gates begin; another one is `all`."""


def is_implicit(gate: str) -> bool:
    """Return whether a gate is one of the four that every job passes, declared or not."""
    return gate == "all" or gate.startswith(IMPLICIT)


def implicit_gates(lane: str, tenant: str, kind: str) -> tuple[str, str, str, str]:
    """Return the four gates that every job of this lane, tenant and kind passes."""
    return ("all", f"lane:{lane}", f"tenant:{tenant}", f"kind:{kind}")


def check_gate_name(name: object, *, shared: bool | None) -> tuple[str, bool]:
    """A gate's name, and whether the gate is shared.

    Args:
        shared: what the caller said; None decides by the placeholders.

    Raises:
        InvalidValue: the name is unusable, or belongs to the implicit gates.
    """
    text = check_name("gate", name)
    fields = placeholders(text)
    if is_implicit(text):
        message = f"the gate name {text!r} belongs to an implicit gate"
        raise InvalidValue(
            message,
            hint="choose another name; change or pause the implicit gate with `headway gates`",
        )
    return text, ALWAYS_KNOWN.issuperset(fields) if shared is None else shared


def _hold(hold: object) -> Hold:
    for known in HOLDS:
        if hold == known:
            return known
    message = f"hold is {hold!r}"
    raise InvalidValue(message, hint="settled or run")
