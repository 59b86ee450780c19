"""Backoff: how long a job waits before its next attempt."""

from __future__ import annotations

import pytest

from headway.core.retry import Backoff


@pytest.mark.parametrize("factor", [2, 3, 8])
def test_delays_of_a_job_grow_until_they_reach_the_cap(factor: float) -> None:
    policy = Backoff(attempts=40, factor=factor)
    below = [n for n in range(1, 40) if 10_000 * factor ** (n - 1) <= policy.cap_ms]
    for job in range(100):
        delays = [policy.delay_ms(attempt, f"job {job}:{attempt}") for attempt in below]
        assert delays == sorted(delays)


def test_delays_are_between_half_and_all_of_what_grows_to_the_cap_unless_another_jitter_is_given():
    policy = Backoff(attempts=20)
    for attempt in range(1, 20):
        whole = min(3_600_000, 10_000 * 2 ** (attempt - 1))
        delays = {policy.delay_ms(attempt, f"job {job}:{attempt}") for job in range(200)}
        assert whole // 2 <= min(delays) < 0.55 * whole
        assert 0.95 * whole < max(delays) <= whole
