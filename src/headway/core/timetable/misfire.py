"""Misfires: what happens to the fires missed in an outage."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never


class MisfirePolicy(StrEnum):
    """Which of the missed fires still happen."""

    SKIP = "skip"
    """None."""
    ONCE = "once"
    """The latest one, for all."""
    ALL = "all"
    """Each one, the latest first to be kept when there are more than the cap."""


def missed(moments: Sequence[int], policy: MisfirePolicy, cap: int) -> list[int]:
    """Choose the missed fires that still happen.

    Args:
        moments: the missed fires, ms UTC, in order.
        policy: which of them.
        cap: with `all`, at most so many.

    Returns:
        Some of the moments, in order.
    """
    match policy:
        case MisfirePolicy.SKIP:
            return []
        case MisfirePolicy.ONCE:
            return list(moments[-1:])
        case MisfirePolicy.ALL:
            return list(moments[max(len(moments) - max(cap, 0), 0) :])
        case _:
            assert_never(policy)
