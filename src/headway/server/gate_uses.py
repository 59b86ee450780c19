"""Gates that jobs name: looked up in a cache of the declared ones, and resolved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from headway.contract.store import Store
from headway.contract.views import SpecsQuery
from headway.core.errors import InvalidValue, UnknownGate
from headway.core.gates.spec import GateSpec, GateUse
from headway.core.naming import placeholders, resolve
from headway.core.zone import find_zone
from headway.runtime.timing import Timing
from headway.server.bodies.jobs import GateBody

FRESH_S = 5.0
"""Seconds for which what was read is believed; only zones and amounts could be outdated."""


class DeclaredGates:
    """Finds gates by the names under which they are declared."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._known: Mapping[str, GateSpec] = {}
        self._read_at = float("-inf")

    async def find(self, names: Iterable[str]) -> Mapping[str, GateSpec]:
        """Return all gates that are declared, these among them.

        Returns:
            The gates by name.

        Raises:
            UnknownGate: nothing declares one of the names.
        """
        wanted = set(names)
        if not wanted:
            return {}
        stale = self._timing.monotonic() - self._read_at > FRESH_S
        if stale or not wanted <= self._known.keys():
            self._known = {spec.name: spec for spec in await self._store.read(SpecsQuery())}
            self._read_at = self._timing.monotonic()
        missing = sorted(wanted - self._known.keys())
        if missing:
            message = f"nothing declares the gate {missing[0][:80]!r}"
            raise UnknownGate(message, hint="declare it first: PUT /v1/gates/NAME, or by an App")
        return self._known

    def forget(self) -> None:
        """Return the next look reads them again: they were changed."""
        self._read_at = float("-inf")


_CANDIDATE = frozenset({"candidate"})
_NONE = frozenset[str]()
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")

Gates = Sequence[str | GateBody]


async def known_gates(declared: DeclaredGates, gates: Gates) -> Mapping[str, GateSpec]:
    """Return the gates that are declared, these among them.

    Raises:
        UnknownGate: nothing declares one of them.
    """
    return await declared.find(one if isinstance(one, str) else one.gate for one in gates)


def gate_uses(
    gates: Gates, known: Mapping[str, GateSpec], values: Mapping[str, object], *, cascade: bool
) -> tuple[GateUse, ...]:
    """Return what a job asks for.

    Args:
        gates: as the request names them.
        known: from `known_gates`.
        values: the job's arguments, with `tenant`, `lane` and `kind` among them.
        cascade: whether `{candidate}` stays for each turn to fill in.

    Returns:
        The gates with their names resolved, in this order.

    Raises:
        InvalidValue: a name cannot be resolved or does not fit, or a zone is unknown.
    """
    keep = _CANDIDATE if cascade else _NONE
    return tuple(
        _use(GateBody(gate=one) if isinstance(one, str) else one, known, values, keep)
        for one in gates
    )


def _use(
    body: GateBody,
    known: Mapping[str, GateSpec],
    values: Mapping[str, object],
    keep: frozenset[str],
) -> GateUse:
    spec = known[body.gate]
    if body.name is None:
        name = resolve(spec.name, values, keep=keep)
    elif _fitting(spec.name).fullmatch(body.name):
        name = body.name
    else:
        message = f"the name {body.name[:80]!r} does not fit the gate {spec.name!r}"
        raise InvalidValue(message, hint="fill in its placeholders, or leave the name out")
    return GateUse(
        name=name,
        template=spec.name,
        amount=body.amount,
        hold=body.hold,
        shared=spec.shared,
        zone=_zone(body, spec, values),
    )


def _zone(body: GateBody, spec: GateSpec, values: Mapping[str, object]) -> str | None:
    if spec.hours is None:
        if body.zone is not None:
            message = f"the gate {spec.name!r} is a {spec.kind} and has no zone"
            raise InvalidValue(message, hint="leave the zone out")
        return None
    if body.zone is None or not placeholders(spec.hours.tz):
        zone = resolve(spec.hours.tz, values)
    else:
        zone = body.zone
    if body.zone not in {None, zone}:
        message = f"the hours {spec.name!r} are those of {zone}"
        raise InvalidValue(message, hint="leave the zone out")
    find_zone(zone)
    return zone


@lru_cache(maxsize=1024)
def _fitting(template: str) -> re.Pattern[str]:
    return re.compile(".+".join(map(re.escape, _PLACEHOLDER.split(template))), re.DOTALL)
