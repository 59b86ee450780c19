from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headway.core.fairness import share

weights = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@given(weights, st.integers(1, 1000), st.integers(1, 10**6))
def test_all_places_of_a_claim_are_distributed_and_no_more(
    weights: list[int], n: int, turn: int
) -> None:
    lanes = [(f"lane-{place}", weight) for place, weight in enumerate(weights)]
    shares = share(lanes, n, turn)
    assert sorted(lane for lane, _ in shares) == sorted(lane for lane, _ in lanes)
    assert sum(places for _, places in shares) == n
    assert all(places >= 0 for _, places in shares)


@given(weights, st.integers(1, 12), st.integers(1, 1000))
def test_claims_of_any_size_reach_the_weights_exactly_in_the_long_run(
    weights: list[int], n: int, first: int
) -> None:
    lanes = [(f"lane-{place}", weight) for place, weight in enumerate(weights)]
    total = sum(weights)
    places, leaders = Counter[str](), Counter[str]()
    for turn in range(first, first + total):
        shares = share(lanes, n, turn)
        leaders[shares[0][0]] += 1
        for lane, number in shares:
            places[lane] += number
    assert places == {lane: weight * n for lane, weight in lanes}
    assert leaders == dict(lanes)


def test_claims_of_one_job_are_well_mixed() -> None:
    lanes = [("a", 5), ("b", 1)]
    order = [max(share(lanes, 1, turn), key=lambda one: one[1])[0] for turn in range(1, 61)]
    assert order.count("b") == 10
    assert "bb" not in "".join(order)
