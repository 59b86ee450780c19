"""A gate is found among any number of declared gates, and few of them are examined for it."""

from __future__ import annotations

import random
import re

import pytest

from headway.core.errors import UnknownGate
from headway.core.gates.pool import Pool
from headway.core.gates.slots import Slots
from headway.stores.ledger import gaterows
from headway.stores.ledger.gaterows import DeclaredGate, GateTemplates, TemplateRow

SHOPS = [f"shop {one}:{{phone}}" for one in range(3_000)]


def test_gate_is_found_among_more_templates_than_cached_patterns() -> None:
    """Compiling a pattern costs a hundred times what using it costs."""
    templates = GateTemplates((name, TemplateRow(spec=Slots(name, 1))) for name in SHOPS)
    made = gaterows._pattern.cache_info().misses
    for one in range(0, 3_000, 100):
        assert templates.place_of(f"shop {one}:+1555").template == f"shop {one}:{{phone}}"
    assert gaterows._pattern.cache_info().misses - made <= 30


def test_few_of_many_templates_are_examined_for_a_gate() -> None:
    rows = {name: TemplateRow(spec=Slots(name, 1)) for name in SHOPS}
    rows |= {name: TemplateRow(spec=Pool(name, ["a"])) for name in map("line {}".format, range(99))}
    templates = GateTemplates(rows)
    assert templates.near("shop 17:+1555") == ["shop 17:{phone}"]
    assert set(templates.near("line 17/a")) == {"line 17", "line 1"}
    assert not templates.near("elsewhere")


def test_gate_is_found_as_among_all_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(7)
    parts, ends = ["a", "ab", "a:", "b/", "{x}", "{y}"], ["", "/m", "/n", "q"]
    asked: list[tuple[GateTemplates, str]] = []
    for _ in range(3_000):
        names = {"".join(draw.choices(parts, k=draw.randint(1, 3))) for _ in range(5)}
        templates = GateTemplates(
            (
                name,
                TemplateRow(spec=Pool(name, ["m", "n"]) if draw.random() < 0.4 else Slots(name, 1)),
            )
            for name in sorted(names)
            if name[0] != "{" and "}{" not in name
        )
        first = draw.choice([*templates] or ["a"])
        gate = re.sub(r"\{.\}", draw.choice(["a", "b/m", "1"]), first) + draw.choice(ends)
        asked.append((templates, gate))
    found = [_place(*one) for one in asked]
    monkeypatch.setattr(GateTemplates, "near", lambda self, _: [*self])
    assert found == [_place(*one) for one in asked]
    assert sum(one is not None for one in found) > 1_000


def test_rivals_of_a_template_are_found_once() -> None:
    templates = GateTemplates((name, TemplateRow(spec=Slots(name, 1))) for name in SHOPS)
    assert templates.rivals_of(SHOPS[0]) is templates.rivals_of(SHOPS[0])


def _place(templates: GateTemplates, gate: str) -> DeclaredGate | None:
    try:
        return templates.place_of(gate)
    except UnknownGate:
        return None
