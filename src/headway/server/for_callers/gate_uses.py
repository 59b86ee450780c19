"""The gates that a request names, as a job asks for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from headway.core.errors import InvalidValue
from headway.core.gates.spec import GateSpec, GateUse
from headway.core.naming import placeholders, resolve
from headway.core.zone import find_zone
from headway.server.bodies.job import GateBody
from headway.server.service import Service

_CANDIDATE = frozenset({"candidate"})
_NONE = frozenset[str]()
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")

Gates = Sequence[str | GateBody]


async def known_gates(service: Service, gates: Gates) -> Mapping[str, GateSpec]:
    """The gates that are declared, these among them.

    Raises:
        UnknownGate: nothing declares one of them.
    """
    return await service.gates.find(one if isinstance(one, str) else one.gate for one in gates)


def gate_uses(
    gates: Gates, known: Mapping[str, GateSpec], values: Mapping[str, object], *, cascade: bool
) -> tuple[GateUse, ...]:
    """What a job asks for.

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
