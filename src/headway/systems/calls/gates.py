"""Gates: what numbers, templates and the house limit, as the engine's gates."""

from __future__ import annotations

from collections.abc import Iterator

from headway.core.gates.opening import Hours
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateNeed, GateSpec
from headway.systems.calls.catalogue import (
    DEFAULT_POOL,
    CatalogueContents,
    pool_gate,
    reseller_gate,
)
from headway.systems.calls.settings import CallsSettings
from headway.systems.calls.template import Template

HOUSE = "calls.customer"
HOUSE_RATE = f"{HOUSE}:{{phone}}"
CHECKS = "calls.checks"
REPORTS = "calls.reports:{tenant}"
"""Each reseller's own: one whose webhook hangs keeps no worker from the calls of others."""


def check_gate(settings: CallsSettings) -> GateNeed:
    """What the pre-checks ask for: a place, which is no line."""
    return Slots(CHECKS, settings.checks_at_once).take(hold="run")


def house_gate(settings: CallsSettings) -> GateSpec:
    """What each call asks for, whatever its template says: its customer's rate."""
    return Rate(HOUSE_RATE, settings.customer_limit, per=f"{settings.customer_per}ms")


def pool_of(page: CatalogueContents, template: Template, reseller: str) -> str:
    """The gate of the numbers from which a lead is called now.

    Returns:
        The template's pool; else the reseller's own, if it has any number; else the default pool.
    """
    if template.numbers is not None:
        return pool_gate(template.numbers)
    own = reseller_gate(reseller)
    if reseller and any(one.gate == own for one in page.numbers.values()):
        return own
    return DEFAULT_POOL


def dial_gates(
    page: CatalogueContents, template: Template, reseller: str, house: GateSpec
) -> tuple[GateSpec, ...]:
    """What a lead must pass to be called now: a line, the hours, the rates."""
    pool = _pool(page, pool_of(page, template, reseller))
    return (pool, *_hours(template), house, *_own_rate(template))


def all_gates(page: CatalogueContents) -> dict[str, GateSpec]:
    """All gates that numbers and templates make, by name."""
    pools = {DEFAULT_POOL: None}
    pools |= {one.gate: None for one in page.numbers.values()}
    pools |= {
        pool_gate(one.numbers): None for one in page.templates.values() if one.numbers is not None
    }
    made = {name: _pool(page, name) for name in pools}
    for template in page.templates.values():
        made |= {one.name: one for one in (*_hours(template), *_own_rate(template))}
    return made


def routes(page: CatalogueContents) -> tuple[object, ...]:
    """Return what decides at which gates leads wait; if it is unchanged, no lead has to move.

    The channels of a number, or when hours open, are read from the gates themselves.
    """
    pools = frozenset(one.gate for one in page.numbers.values())
    asked = {
        one.name: (one.numbers, one.hours is None, one.customer_limit is None)
        for one in page.templates.values()
    }
    return pools, asked


def changed_gates(before: CatalogueContents, after: CatalogueContents) -> tuple[GateSpec, ...]:
    """Return the gates to declare so that the store matches another page.

    A pool that has lost its last number is declared empty: its leads go on waiting until they are
    requeued.
    """
    old, new = all_gates(before), all_gates(after)
    emptied = {
        name: _pool(after, name) for name, spec in old.items() if name not in new and spec.members
    }
    changed = {name: spec for name, spec in new.items() if old.get(name) != spec}
    return tuple({**emptied, **changed}.values())


def _pool(page: CatalogueContents, name: str) -> GateSpec:
    members = {one.number: one.channels for one in page.numbers.values() if one.gate == name}
    return Pool(name, members, shared=True)


def _hours(template: Template) -> Iterator[GateSpec]:
    if template.hours is not None:
        yield Hours(
            f"calls.hours:{template.name}:{{tz}}",
            template.hours.spans,
            days=template.hours.days,
            tz="{tz}",
            exceptions=template.hours.exceptions,
        )


def _own_rate(template: Template) -> Iterator[GateSpec]:
    if template.customer_limit is not None:
        yield Rate(
            f"{HOUSE}:{template.name}:{{phone}}",
            template.customer_limit,
            per=f"{template.customer_per}ms",
        )
