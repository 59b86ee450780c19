"""A gate is found among any number of declared gates."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from headway.core.errors import UnknownGate
from headway.core.gates.pool import Pool
from headway.core.gates.slots import Slots
from headway.stores.ledger import gaterows
from headway.stores.ledger.gaterows import DeclaredGate, TemplateIndex, TemplateRow, place_of


def test_gate_is_found_among_more_templates_than_cached_patterns() -> None:
    """Compiling a pattern costs a hundred times what using it costs."""
    names = [f"shop {one}:{{phone}}" for one in range(3_000)]
    templates = {name: TemplateRow(spec=Slots(name, 1)) for name in names}
    made = gaterows._pattern.cache_info().misses
    for one in range(0, 3_000, 100):
        assert place_of(templates, f"shop {one}:+1555").template == f"shop {one}:{{phone}}"
    assert gaterows._pattern.cache_info().misses - made <= 30


def test_few_of_many_templates_are_examined_for_a_gate() -> None:
    names = [f"shop {one}:{{phone}}" for one in range(3_000)]
    rows = {name: TemplateRow(spec=Slots(name, 1)) for name in names}
    rows |= {name: TemplateRow(spec=Pool(name, ["a"])) for name in map("line {}".format, range(99))}
    index = TemplateIndex(rows)
    assert set(index.near("shop 17:+1555")) <= {"shop 17:{phone}", "shop 1:{phone}"}
    assert set(index.near("line 17/a")) == {"line 17", "line 1"}
    assert not index.near("elsewhere")


def test_gate_is_found_as_among_all_templates() -> None:
    draw = random.Random(7)
    parts, ends = ["a", "ab", "a:", "b/", "{x}", "{y}"], ["", "/m", "/n", "q"]
    found = 0
    for _ in range(3_000):
        names = {"".join(draw.choices(parts, k=draw.randint(1, 3))) for _ in range(5)}
        rows = {
            name: TemplateRow(
                spec=Pool(name, ["m", "n"]) if draw.random() < 0.4 else Slots(name, 1)
            )
            for name in names
            if name[0] != "{" and "}{" not in name
        }
        first = draw.choice(sorted(rows) or ["a"])
        gate = re.sub(r"\{.\}", draw.choice(["a", "b/m", "1"]), first) + draw.choice(ends)
        expected = _place(rows, gate)
        assert _place(TemplateIndex(rows).near(gate), gate) == expected
        found += expected is not None
    assert found > 1_000


def _place(rows: Mapping[str, TemplateRow], gate: str) -> DeclaredGate | None:
    try:
        return place_of(rows, gate)
    except UnknownGate:
        return None
