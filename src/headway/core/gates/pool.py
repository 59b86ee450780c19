"""Pool: one of several Slots; the handler gets the chosen member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar, cast

from headway.core.errors import InvalidValue
from headway.core.gates.spec import (
    STRATEGIES,
    GateKind,
    GateSpec,
    GateTraits,
    Strategy,
    check_count,
    check_gate_name,
)
from headway.core.naming import check_name


def Pool(  # noqa: N802  (reads as the record that it builds)
    name: str,
    members: Mapping[str, int] | Sequence[str],
    *,
    strategy: Strategy = "least_used",
    shared: bool | None = None,
) -> GateSpec:
    """Declare a gate that is open while any of its members has a free permit.

    Args:
        name: a fixed name, or a template over arguments.
        members: capacity of each member; a plain list gives each member one permit.
        strategy: "least_used" (lowest share of its capacity in use, then the given order),
            "round_robin" (the next after the last chosen) or "first_free" (the given order).
        shared: True if an argument in the name has only few values.

    Returns:
        The gate. A member's own gate is `name/member`.

    Raises:
        InvalidValue: an argument is not valid.
    """
    text, common = check_gate_name(name, shared=shared)
    if strategy not in STRATEGIES:
        message = f"the strategy of the pool {text!r} is {strategy!r}"
        raise InvalidValue(message, hint=", ".join(STRATEGIES))
    if isinstance(members, str) or not isinstance(cast("object", members), Mapping | Sequence):
        message = f"the members of the pool {text!r} are {members!r:.80}"
        raise InvalidValue(message, hint="pass names and capacities, or a list of names")
    pairs = members.items() if isinstance(members, Mapping) else [(m, 1) for m in members]
    checked = tuple(
        (
            check_name(f"member of {text!r}", member),
            check_count(f"capacity of {member!r} in {text!r}", capacity, least=0),
        )
        for member, capacity in pairs
    )
    if len({member for member, _ in checked}) != len(checked):
        message = f"the pool {text!r} names a member twice"
        raise InvalidValue(message, hint="name each member once, with a larger capacity")
    return GateSpec(
        name=text, kind=GateKind.POOL, shared=common, members=checked, strategy=strategy
    )


POOL = GateTraits(
    declared=lambda spec: {
        "strategy": spec.strategy,
        "shared": spec.shared,
        "members": dict(spec.members),
    },
    takes_permits=True,
    chooses_member=True,
    settable=frozenset({"members"}),
)


def member_gate(pool: str, member: str) -> str:
    """Return the name of a pool member's own Slots."""
    return f"{pool}/{member}"


class Member(Protocol):
    """The fields that a strategy uses."""

    name: str
    capacity: int
    used: int
    free: int


AnyMember = TypeVar("AnyMember", bound=Member)


def choose(
    members: Sequence[AnyMember], strategy: Strategy, amount: int, last: str
) -> AnyMember | None:
    """Choose a member with at least `amount` free; None if there is none.

    Args:
        members: members in the pool's order.
        last: name of the member chosen last, for round_robin; empty at first.
    """
    able = [member for member in members if member.free >= amount]
    if not able:
        return None
    if strategy == "least_used":
        least = able[0]
        for member in able:
            if member.used / member.capacity < least.used / least.capacity:
                least = member
        return least
    if strategy == "round_robin":
        names = [member.name for member in members]
        turn = names.index(last) + 1 if last in names else 0
        in_turn = [*members[turn:], *members[:turn]]
        able = [member for member in in_turn if member.free >= amount]
    return able[0]
