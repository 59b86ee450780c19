"""Lines: the channels of each number, as the gates have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.contract.store import Store
from headway.contract.views import GatesQuery, GateState, SpecsQuery
from headway.core.gates.spec import GateKind

POOLS = ("calls.numbers", "calls.pool:")
"""How the names of pools of numbers begin."""
MOST_POOLS = 500
"""Pools that are looked at, the first by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A number with its channels.

    Attributes:
        number: in E.164.
        used: channels under calls.
        capacity: channels that it has; 0 for a number that is switched off.
        closed: why nobody may call from it, by whom; empty if somebody may.
    """

    number: str
    used: int
    capacity: int
    closed: str

    @property
    def usable(self) -> bool:
        """Whether a call can be made from it, now or when a channel is free."""
        return self.capacity > 0 and not self.closed

    @property
    def free(self) -> int:
        """Channels from which a call can be made now."""
        return max(0, self.capacity - self.used) if self.usable else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePool:
    """A pool of numbers.

    Attributes:
        name: of the gate.
        closed: somebody has closed the whole pool.
        lines: its numbers, by name.
    """

    name: str
    closed: bool
    lines: tuple[Line, ...]

    @property
    def free(self) -> int:
        """Channels from which a call can be made now."""
        return 0 if self.closed else sum(line.free for line in self.lines)

    @property
    def usable(self) -> bool:
        """Whether any of its numbers can be used."""
        return any(line.usable for line in self.lines)


def without_number(pools: Sequence[LinePool], waits: Mapping[str, int]) -> dict[str, LinePool]:
    """The pools for which leads wait, and of which no number can be used, by name.

    A pool that somebody has closed as a whole is meant to wait.

    Args:
        pools: of numbers.
        waits: how many leads wait, by gate.
    """
    return {
        pool.name: pool
        for pool in pools
        if not pool.usable and not pool.closed and waits.get(pool.name, 0)
    }


async def look_at_lines(store: Store) -> tuple[LinePool, ...]:
    """The pools of numbers, by name; two bounded reads.

    Args:
        store: where they are gates.

    Raises:
        StoreError: the store cannot tell now.
    """
    specs = await store.read(SpecsQuery())
    names = sorted(
        spec.name
        for spec in specs
        if spec.kind is GateKind.POOL and spec.name.startswith(POOLS) and "{" not in spec.name
    )[:MOST_POOLS]
    if not names:
        return ()
    return tuple(_pool(state) for state in (await store.read(GatesQuery(names=tuple(names)))).rows)


def _pool(state: GateState) -> LinePool:
    lines = (_line(state.name, member) for member in state.members)
    return LinePool(
        name=state.name,
        closed=state.closed_until is not None,
        lines=tuple(sorted(lines, key=lambda line: line.number)),
    )


def _line(pool: str, member: GateState) -> Line:
    closed = ""
    if member.closed_until is not None:
        closed = f"closed by {member.closed_by}: {member.closed_reason}"
    return Line(
        number=member.name.removeprefix(f"{pool}/"),
        used=member.used,
        capacity=member.capacity or 0,
        closed=closed,
    )
