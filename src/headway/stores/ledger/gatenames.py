"""The declared gate that a resolved name belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from headway.core.errors import UnknownGate
from headway.core.gates.spec import GateKind, Hold
from headway.stores.ledger.gaterows import TemplateRow

IMPLICIT = ("lane:", "tenant:", "kind:")


class Place(NamedTuple):
    """The declared gate and pool of a gate's name.

    Attributes:
        template: the declared name; "" for an implicit gate.
        pool: of a member, its pool's resolved name; else "".
    """

    template: str
    pool: str


def is_implicit(gate: str) -> bool:
    """Return whether the name is one of the four that always apply."""
    return gate == "all" or gate.startswith(IMPLICIT)


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
        if row.current.kind is GateKind.POOL:
            for member, _ in row.current.members:
                pool = gate.removesuffix(f"/{member}")
                if pool != gate and _matches(name, pool):
                    found.append((len(name) + len(member), Place(name, pool)))
        if _matches(name, gate):
            found.append((_fixed(name), Place(name, "")))
    if not found:
        message = f"the gate {gate!r} is not declared"
        raise UnknownGate(message, hint="`headway gates` lists the declared gates")
    return max(found)[1]


@lru_cache(maxsize=1024)
def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{[A-Za-z_][A-Za-z0-9_]*\}", template)
    return re.compile(".+".join(map(re.escape, parts)), re.DOTALL)


def _matches(template: str, gate: str) -> bool:
    return template == gate or ("{" in template and _pattern(template).fullmatch(gate) is not None)


def _fixed(template: str) -> int:
    return len(re.sub(r"\{[A-Za-z_][A-Za-z0-9_]*\}", "", template))
