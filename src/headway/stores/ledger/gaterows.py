"""The ledger's rows of gates, and the declared gate that a resolved name belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import msgspec

from headway.core.errors import InvalidValue, UnknownGate
from headway.core.gates.spec import GateSpec, GateUse, Hold, is_implicit
from headway.core.gates.view import Reservation

FOREVER = 253_402_300_800_000
"""The end of the year 9999: closed until then means closed until opened by hand."""
MOST_LANES = 64
"""Lanes that a shut gate remembers by name."""
ANY_LANE = ""
"""Stands for more lanes than MOST_LANES; no lane has an empty name."""


class GateRow(msgspec.Struct):
    """A gate's instance; it has a row while there is state to keep.

    A msgspec struct, as `JobRow` is: a step copies each that it reads and that it writes.

    Attributes:
        name: resolved; `pool/member` for a pool's member.
        template: under which it is declared; "" for an implicit gate.
        pool: of a member, its pool's name; else "".
        used: permits out, or starts in the window as of the last trim: a cache.
        timer_at: when a keyed gate must be processed because it opens by itself.
        horizon_at: of an Hours: known up to here.
        capacity: an operator's value for this instance (a rate's limit too); None for none.
        closed_until: when a closed gate opens; None if it is not closed, FOREVER without an end.
        last: of a pool, the member chosen last.
        lanes: of a shared gate, lanes whose claims found it shut since it had room last: they are
            woken, and forgotten, when it has room again. At most MOST_LANES, else ANY_LANE alone.
        opens: of an Hours, absolute open intervals, sorted.
        reserved: the current or last reservation; None if there was none.
    """

    name: str
    template: str
    pool: str = ""
    used: int = 0
    timer_at: int | None = None
    horizon_at: int | None = None
    capacity: int | None = None
    closed_until: int | None = None
    closed_by: str = ""
    closed_reason: str = ""
    last: str = ""
    lanes: tuple[str, ...] = ()
    zone: str | None = None
    opens: tuple[tuple[int, int], ...] = ()
    reserved: Reservation | None = None

    def idle(self) -> bool:
        """Return whether the row holds no state and can be deleted."""
        return (
            self.used == 0
            and self.capacity is None
            and self.closed_until is None
            and self.timer_at is None
            and self.horizon_at is None
            and not self.last
            and not self.lanes
            and self.reserved is None
        )

    def lanes_with(self, lane: str) -> tuple[str, ...]:
        """Return the lanes to wake when the gate has room, with this one added."""
        if lane in self.lanes or ANY_LANE in self.lanes:
            return self.lanes
        return (*self.lanes, lane) if len(self.lanes) < MOST_LANES else (ANY_LANE,)

    def clone(self) -> GateRow:
        """Return a copy."""
        return copy(self)


@dataclass(slots=True, kw_only=True)
class TemplateRow:
    """A declared gate, and an operator's override.

    Attributes:
        spec: as declared by code.
        override: as set by an operator; None for none.
    """

    spec: GateSpec
    override: GateSpec | None = None

    @property
    def current(self) -> GateSpec:
        """The spec that applies now."""
        return self.override or self.spec


class PermitRow(NamedTuple):
    """A permit; its holder is (job, run).

    Attributes:
        gate: what it is a permit of; of a pool, the member's gate.
        pool: the pool's name; else "".
    """

    gate: str
    job: str
    run: int
    pool: str
    amount: int
    since: int
    hold: Hold


class Holders(NamedTuple):
    """What is out of a gate.

    Attributes:
        permits: how many.
        amount: of these together.
        first: the first permits.
    """

    permits: int
    amount: int
    first: Sequence[PermitRow]


NO_HOLDERS = Holders(0, 0, ())


class Place(NamedTuple):
    """The declared gate and pool of a gate's name.

    Attributes:
        template: the declared name; "" for an implicit gate.
        pool: of a member, its pool's resolved name; else "".
    """

    template: str
    pool: str


def implicit_hold(gate: str) -> Hold:
    """Return how long an implicit gate's permits are held: a lane's concurrency counts handlers."""
    return "run" if gate.startswith("lane:") else "settled"


def place_of(templates: Mapping[str, TemplateRow], gate: str) -> Place:
    """Return the declared gate and the pool that a resolved name belongs to.

    Args:
        gate: resolved, or the name of a pool's member (`pool/member`).

    Returns:
        Its place. If several templates match, the one with the most fixed characters.

    Raises:
        UnknownGate: the gate is not declared.
    """
    if is_implicit(gate):
        return Place("", "")
    if gate in templates:
        return Place(gate, "")
    found: list[tuple[int, Place]] = []
    for name, row in templates.items():
        found += _as_member(name, row.current, gate)
        if _matches(name, gate):
            found.append((_fixed(name), Place(name, "")))
    if not found:
        message = f"the gate {gate!r} is not declared"
        raise UnknownGate(message, hint="`headway gates` lists the declared gates")
    return max(found)[1]


def _as_member(template: str, spec: GateSpec, gate: str) -> list[tuple[int, Place]]:
    """Return the pools of this spec of which the gate is a member, with their fixed characters."""
    pools = [(member, gate.removesuffix(f"/{member}")) for member, _ in spec.members]
    return [
        (len(template) + len(member), Place(template, pool))
        for member, pool in pools
        if pool != gate and _matches(template, pool)
    ]


def refuse_members_name(templates: Mapping[str, TemplateRow], spec: GateSpec) -> None:
    """Refuse a gate and a pool's member of one name: what one takes would be counted at both.

    Args:
        spec: as it is declared, or as an operator sets it.

    Raises:
        InvalidValue: a declared gate has the name of a member, or the gate has a member's.
    """
    for name, row in templates.items():
        if not (spec.members or row.spec.members or row.override):
            continue
        for pool, gate in ((spec, name), (row.spec, spec.name), (row.current, spec.name)):
            _refuse_member(pool, gate)


def refuse_members_use(templates: Mapping[str, TemplateRow], use: GateUse) -> None:
    """Refuse a templated gate whose resolved name is that of a pool's member.

    Raises:
        InvalidValue: it is.
    """
    if use.name != use.template and "/" in use.name:
        for row in templates.values():
            if row.current.members:
                _refuse_member(row.current, use.name)


def _refuse_member(pool: GateSpec, gate: str) -> None:
    if _as_member(pool.name, pool, gate):
        message = f"the gate {gate!r} has the same name as a member of the pool {pool.name!r}"
        raise InvalidValue(message, hint="rename one of the two")


@lru_cache(maxsize=1024)
def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{[A-Za-z_][A-Za-z0-9_]*\}", template)
    return re.compile(".+".join(map(re.escape, parts)), re.DOTALL)


def _matches(template: str, gate: str) -> bool:
    fixed, brace, _ = template.partition("{")
    if not brace:
        return template == gate
    # Nearly all are told by their beginning; more patterns than are kept would be made each time.
    return template == gate or (
        gate.startswith(fixed) and _pattern(template).fullmatch(gate) is not None
    )


@lru_cache(maxsize=1024)
def _fixed(template: str) -> int:
    return len(re.sub(r"\{[A-Za-z_][A-Za-z0-9_]*\}", "", template))
