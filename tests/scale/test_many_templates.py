"""A gate is found among any number of declared gates."""

from __future__ import annotations

from headway.core.gates.slots import Slots
from headway.stores.ledger import gaterows
from headway.stores.ledger.gaterows import TemplateRow, place_of


def test_gate_is_found_among_more_templates_than_cached_patterns() -> None:
    """Compiling a pattern costs a hundred times what using it costs."""
    names = [f"shop {one}:{{phone}}" for one in range(3_000)]
    templates = {name: TemplateRow(spec=Slots(name, 1)) for name in names}
    made = gaterows._pattern.cache_info().misses
    for one in range(0, 3_000, 100):
        assert place_of(templates, f"shop {one}:+1555").template == f"shop {one}:{{phone}}"
    assert gaterows._pattern.cache_info().misses - made <= 30
