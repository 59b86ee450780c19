"""The ledger's gate rows, and the declared gate that a resolved name belongs to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import msgspec

from headway.core.errors import InvalidValue, UnknownGate
from headway.core.gates.spec import GateSpec, GateUse, Hold, is_implicit
from headway.core.gates.view import Reservation

FOREVER = 253_402_300_800_000
"""The end of the year 9999: a gate closed until then stays closed until it is opened."""
MOST_LANES = 64
"""Most lanes that a shut gate remembers by name."""
ANY_LANE = ""
"""Replaces the names of more than MOST_LANES lanes; no lane has an empty name."""


class GateRow(msgspec.Struct):
    """An instance of a gate; it has a row while there is state to keep.

    A msgspec struct, as `JobRow` is, because a step copies each row that it reads or writes.

    Attributes:
        name: resolved; `pool/member` for a pool's member.
        template: the name under which it is declared; "" for an implicit gate.
        pool: a member's pool; "" for other gates.
        used: permits out, or starts in the window as of the last trim: a cache.
        timer_at: when a keyed gate must be processed because it opens by itself.
        horizon_at: until when the intervals of an Hours are computed.
        capacity: an operator's value for this instance (for a rate, its limit); None if not set.
        closed_until: when a closed gate opens, FOREVER if never by itself; None if not closed.
        last: the member that a pool chose last.
        lanes: lanes whose claims found a shared gate shut since it last had room. They are woken
            and removed when it has room again. At most MOST_LANES names, or only ANY_LANE.
        opens: the open intervals of an Hours, absolute and sorted.
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
        """Return whether the row has no state and can be deleted."""
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

    def clone(self) -> GateRow:
        """Return a copy."""
        return copy(self)


def is_closed(row: GateRow | None, now: int) -> bool:
    """Return whether a gate is closed, regardless of its limit."""
    return row is not None and row.closed_until is not None and row.closed_until > now


@dataclass(slots=True, kw_only=True)
class TemplateRow:
    """A declared gate, and an operator's override.

    Attributes:
        spec: as declared in code.
        override: as set by an operator; None if not set.
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
        gate: the gate of which it is a permit; for a pool, the member's gate.
        pool: the pool's name; "" for other gates.
    """

    gate: str
    job: str
    run: int
    pool: str
    amount: int
    since: int
    hold: Hold


class ReturnedPermits(NamedTuple):
    """The amount of permits of one gate that are returned together; `pool` as in `PermitRow`."""

    gate: str
    pool: str
    amount: int


def amounts_of(permits: Iterable[tuple[str, str, int]]) -> list[ReturnedPermits]:
    """Return the total amounts of permits, each given as (gate, pool, amount)."""
    amounts: dict[tuple[str, str], int] = {}
    for gate, pool, amount in permits:
        place = (gate, pool)
        amounts[place] = amounts.get(place, 0) + amount
    return [ReturnedPermits(gate, pool, amount) for (gate, pool), amount in amounts.items()]


class Holders(NamedTuple):
    """The permits of a gate that are out.

    Attributes:
        permits: their number.
        amount: their total amount.
        first: the first of them.
    """

    permits: int
    amount: int
    first: Sequence[PermitRow]


NO_HOLDERS = Holders(0, 0, ())


class DeclaredGate(NamedTuple):
    """The declared gate and pool of a gate's name.

    Attributes:
        template: the declared name; "" for an implicit gate.
        pool: the resolved name of a member's pool; "" for other gates.
    """

    template: str
    pool: str


def implicit_hold(gate: str) -> Hold:
    """Return how long an implicit gate's permits are held: a lane's concurrency counts handlers."""
    return "run" if gate.startswith("lane:") else "settled"


class GateTemplates(dict[str, TemplateRow]):
    """The declared gates by name. It is never changed: a definition makes another one.

    What follows from all of them is computed once, as there may be hundreds and any step needs it.
    """

    @cached_property
    def _by_beginning(self) -> Mapping[str, Sequence[str]]:
        """Those that names may have other than their own, by how their names begin."""
        found: dict[str, list[str]] = {}
        for name, row in self.items():
            beginning, brace, _ = name.partition("{")
            if brace or row.current.members:
                found.setdefault(beginning, []).append(name)
        return found

    @cached_property
    def _lengths(self) -> Collection[int]:
        """The lengths of these beginnings: few, because most are as long as others."""
        return {len(one) for one in self._by_beginning}

    @cached_property
    def _rivals(self) -> dict[str, list[TemplateRow]]:
        return {}

    def place_of(self, gate: str) -> DeclaredGate:
        """Return the declared gate and the pool that a resolved name belongs to.

        Args:
            gate: resolved, or the name of a pool's member (`pool/member`).

        Returns:
            The place. If several templates match, the one with the most fixed characters wins.

        Raises:
            UnknownGate: the gate is not declared.
        """
        if is_implicit(gate):
            return DeclaredGate("", "")
        if gate in self:
            return DeclaredGate(gate, "")
        found: list[tuple[int, DeclaredGate]] = []
        for name in self.near(gate):
            found += _as_member(name, self[name].current, gate)
            if _matches(name, gate):
                found.append((_fixed(name), DeclaredGate(name, "")))
        if not found:
            message = f"the gate {gate!r} is not declared"
            raise UnknownGate(message, hint="`headway gates` lists the declared gates")
        return max(found)[1]

    def near(self, gate: str) -> Sequence[str]:
        """Return the declared gates with arguments or members whose names begin as this one."""
        beginnings = {gate[:length] for length in self._lengths}
        return [name for one in beginnings for name in self._by_beginning.get(one, ())]

    def rivals_of(self, template: str) -> list[TemplateRow]:
        """Return the gates with which a declared gate may share a name although they count apart.

        They are few, whatever is declared, because most names begin with a word of their own.
        """
        known = self._rivals.get(template)
        if known is None:
            own = _counts_as(self[template].current, None)
            known = self._rivals[template] = [
                row
                for name, row in self.items()
                if (row.current.members or _counts_as(row.current, None) != own)
                and may_share_name(name, template)
            ]
        return known


def _as_member(template: str, spec: GateSpec, gate: str) -> list[tuple[int, DeclaredGate]]:
    """Return the pools of this spec that have the gate as a member, with their fixed characters."""
    # The prefix rules out the members of nearly all other pools, of which there may be many.
    if not gate.startswith(template.partition("{")[0]):
        return []
    pools = [(member, gate.removesuffix(f"/{member}")) for member, _ in spec.members]
    return [
        (len(template) + len(member), DeclaredGate(template, pool))
        for member, pool in pools
        if pool != gate and _matches(template, pool)
    ]


def refuse_members_name(templates: Mapping[str, TemplateRow], spec: GateSpec) -> None:
    """Refuse a gate with the name of a pool's member: permits of one would count at both.

    Args:
        spec: the gate as it is declared, or as an operator sets it.

    Raises:
        InvalidValue: a declared gate has the name of one of its members, or it has a member's name.
    """
    for name, row in templates.items():
        if not (spec.members or row.spec.members or row.override):
            continue
        for pool, gate in ((spec, name), (row.spec, spec.name), (row.current, spec.name)):
            _refuse_member(pool, gate)


def may_share_name(template: str, other: str) -> bool:
    """Return whether two templates may resolve to one name, as far as their beginnings show."""
    start, begin = template.partition("{")[0], other.partition("{")[0]
    return start.startswith(begin) or begin.startswith(start)


def refuse_others_name(rivals: Iterable[TemplateRow], use: GateUse, own: GateSpec) -> None:
    """Refuse a templated gate whose resolved name is that of another gate: both would count in one.

    Gates of the same kind may share a name, and then share its permits; rates with the same window,
    their starts; hours that are the same, their times.

    Args:
        rivals: of its template; see `GateTemplates.rivals_of`.
        own: of its template.

    Raises:
        InvalidValue: it is the name of an implicit gate, of a pool's member, or of a declared gate
            of another kind, or with another window or other hours.
    """
    if use.name == use.template:
        return
    named = f"the gate {use.name!r}, named by {use.template!r},"
    if is_implicit(use.name):
        message = f"{named} is an implicit gate"
        raise InvalidValue(message, hint=f"begin the name of {use.template!r} with a fixed word")
    for row in rivals:
        spec = row.current
        if spec.members and "/" in use.name:
            _refuse_member(spec, use.name)
        is_apart = _counts_as(spec, use.zone) != _counts_as(own, use.zone)
        if is_apart and _matches(spec.name, use.name) and _names_first(spec.name, use):
            message = f"{named} has the same name as the {spec.kind} {spec.name!r}"
            raise InvalidValue(message, hint="rename one of the two")


def _counts_as(spec: GateSpec, zone: str | None) -> tuple[object, ...]:
    """Return what gates with one name must have in common.

    Args:
        zone: of an Hours whose zone is a template; None if that is not known yet.
    """
    own: tuple[object, ...] = (spec.kind, spec.shared, spec.per_ms)
    if (hours := spec.hours) is None:
        return own
    where = zone if "{" in hours.tz else hours.tz
    return (*own, hours.spans, hours.days, hours.exceptions, where)


def _names_first(template: str, use: GateUse) -> bool:
    """Return whether a resolved name belongs to this template, and not to that of its use."""
    own = use.template
    return template == use.name or (_fixed(template), template) > (_fixed(own), own)


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
    # The prefix rules out nearly all; patterns beyond the cache's size are compiled on each use.
    return template == gate or (
        gate.startswith(fixed) and _pattern(template).fullmatch(gate) is not None
    )


@lru_cache(maxsize=1024)
def _fixed(template: str) -> int:
    return len(re.sub(r"\{[A-Za-z_][A-Za-z0-9_]*\}", "", template))
