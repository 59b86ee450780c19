"""Backoff: how long a job waits before its next attempt."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.errors import InvalidValue
from headway.core.retry import Backoff


@pytest.mark.parametrize("factor", [2, 3, 8])
def test_retry_delays_grow_until_they_reach_the_cap(factor: float) -> None:
    policy = Backoff(attempts=40, factor=factor)
    below = [n for n in range(1, 40) if 10_000 * factor ** (n - 1) <= policy.cap_ms]
    for job in range(100):
        delays = [policy.delay_ms(attempt, f"job {job}:{attempt}") for attempt in below]
        assert delays == sorted(delays)


def test_delays_are_jittered_down_to_half_unless_another_jitter_is_given():
    policy = Backoff(attempts=20)
    for attempt in range(1, 20):
        whole = min(3_600_000, 10_000 * 2 ** (attempt - 1))
        delays = {policy.delay_ms(attempt, f"job {job}:{attempt}") for job in range(200)}
        assert whole // 2 <= min(delays) < 0.55 * whole
        assert 0.95 * whole < max(delays) <= whole


@pytest.mark.parametrize(
    "given",
    [
        {"attempts": 0},
        {"attempts": "3"},
        {"attempts": 3.0},
        {"attempts": 2**31},
        {"attempts": True},
        {"factor": "2"},
        {"factor": None},
        {"factor": 0.99},
        {"factor": 1000.5},
        {"jitter": "some"},
        {"base": "2s", "cap": "1999ms"},
    ],
)
def test_backoff_beyond_its_limits_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidValue, match=f"Backoff: {next(iter(given)) if len(given) < 2 else 'cap'}"
    ):
        Backoff(**given)


def test_backoff_at_its_limits_is_accepted() -> None:
    once = Backoff(attempts=1, base="2s", factor=1, cap="2s", jitter="none")
    assert [once.delay_ms(attempt, "seed") for attempt in (1, 2, 9)] == [2_000] * 3
    assert [once.exhausted(attempt) for attempt in (0, 1)] == [False, True]
    # With this many attempts, the uncapped delay overflows a float.
    assert Backoff(factor=1000, jitter="none").delay_ms(10_000, "seed") == 3_600_000


@pytest.mark.parametrize("factor", [1.01, 1.5, 2.0, 2.01])
def test_small_factor_also_reaches_the_cap(factor: float) -> None:
    policy = Backoff(base="1s", factor=factor, cap="1h", jitter="none")
    assert policy.delay_ms(10**9, "seed") == 3_600_000
