"""The limits of gate declarations: the last accepted values, and the first refused ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.core.errors import InvalidValue
from headway.core.gates.kinds import KINDS
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.spec import GateKind, GateSpec
from headway.stores.ledger.gatekinds import RULES


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Rate("pace", 1, "0ms"),
        lambda: Rate("pace", -1, "1s"),
        lambda: Pool("lines", {"a": -1}),
        lambda: Pool("lines", ["a", "b", "a"]),
        lambda: Pool("lines", ["a", ""]),
        lambda: Pool("lines", "abc"),
        lambda: Pool("lines", {"a", "b"}),  # type: ignore[arg-type]
        lambda: Pool("lines", ["a"], strategy="random"),  # type: ignore[arg-type]
    ],
)
def test_gate_beyond_its_limits_is_refused(declare: Callable[[], GateSpec]) -> None:
    with pytest.raises(InvalidValue):
        declare()


def test_gate_that_lets_nothing_pass_or_has_the_shortest_window_is_accepted() -> None:
    rate = Rate("pace", 0, "1ms")
    assert (rate.limit, rate.per_ms) == (0, 1)
    assert Pool("lines", {"a": 0}).members == (("a", 0),)
    assert Pool("lines", ["a", "b"]).members == (("a", 1), ("b", 1))
    assert Pool("lines", []).members == ()


def test_each_kind_of_gate_has_traits_and_rules() -> None:
    assert set(RULES) == set(KINDS) == set(GateKind)
