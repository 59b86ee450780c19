"""How one claim is shared between lanes by weight."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import gcd


def share(lanes: Sequence[tuple[str, int]], n: int, turn: int) -> list[tuple[str, int]]:
    """Share the places of a claim between lanes by weight, exactly in the long run.

    The places of all turns form one row in which each lane has its weight's share of every
    stretch as long as the sum of the weights, well mixed. So claims of one job are as fair as
    claims of a thousand.

    Args:
        lanes: names and weights, each at least 1.
        n: places of this claim.
        turn: its number, from 1.

    Returns:
        Each lane and its places, `n` together. The lane to be served first, where handlers are
        few, comes first; that goes round by weight too.
    """
    weights = tuple(weight for _, weight in lanes)
    total = sum(weights)
    cycles, rest = divmod(n, total)
    places = [cycles * weight for weight in weights]
    for place in range((turn - 1) * n, (turn - 1) * n + rest):
        places[_lane_at(weights, place)] += 1
    shares = [(lane, count) for (lane, _), count in zip(lanes, places, strict=True)]
    first = _lane_at(weights, turn - 1)
    return shares[first:] + shares[:first]


def _lane_at(weights: tuple[int, ...], place: int) -> int:
    ends, total, stride = _row(weights)
    return bisect_right(ends, place * stride % total)


@lru_cache(maxsize=1024)
def _row(weights: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
    """Where each lane ends in a cycle, the cycle's length, and a stride that mixes it well."""
    ends = tuple(accumulate(weights))
    total = ends[-1]
    # Near the golden section, so that no lane's places come in a heap.
    stride = max(1, round(total * 0.618))
    while gcd(stride, total) > 1:
        stride += 1
    return ends, total, stride
