"""Backoff: the delay before a job's next attempt, with reproducible jitter."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from typing import Literal, get_args

from headway.core.duration import Duration, check_duration, format_duration
from headway.core.errors import InvalidValue


def draw(seed: str) -> float:
    """Return a pseudo-random number in [0, 1) that depends only on the seed."""
    # SHA-1, because Redis scripts must draw the same number and have no other hash; 52 bits, which
    # are exact in a double.
    drawn = sha1(seed.encode(), usedforsecurity=False).hexdigest()[:13]
    return int(drawn, 16) / 2**52


MAX_ATTEMPTS = 2**31 - 1
Jitter = Literal["full", "equal", "none"]
JITTERS: tuple[Jitter, ...] = get_args(Jitter)


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """The resolved form of a `Backoff`, as stores keep it.

    Attributes:
        attempts: maximum number of attempts in one life, at least 1.
        base_ms: delay after the first failure.
        factor: factor by which each further delay grows.
        cap_ms: maximum delay.
        jitter: `equal` picks a delay between half and all of it, `full` between 0 and all of it,
            `none` uses it unchanged.
    """

    attempts: int = 5
    base_ms: int = 10_000
    factor: float = 2.0
    cap_ms: int = 3_600_000
    jitter: Jitter = "equal"

    def exhausted(self, attempt: int) -> bool:
        """Return whether no attempt is left after this one (1 for the first)."""
        return attempt >= self.attempts

    def delay_ms(self, attempt: int, seed: str) -> int:
        """Return the delay after a failed attempt.

        The jitter is a hash of the seed, so that a repeated settlement writes the same due time.
        With `equal` and a factor of at least 2, no delay below the cap is shorter than the previous
        one.

        Args:
            attempt: the attempt that failed, 1 for the first.
            seed: source of the jitter, such as the job's id and run.

        Returns:
            Milliseconds, from 0 to `cap_ms`.
        """
        # A larger exponent may overflow. The cap is reached before, unless the factor is almost 1.
        most = 1_000 if self.factor <= 2 else 64
        whole = min(self.cap_ms, self.base_ms * self.factor ** min(attempt - 1, most))
        if self.jitter == "none":
            return int(whole)
        floor = whole / 2 if self.jitter == "equal" else 0.0
        return int(floor + (whole - floor) * draw(seed))


def Backoff(  # noqa: N802  (reads as the record that it builds)
    attempts: int = 5,
    base: Duration = "10s",
    factor: float = 2.0,
    cap: Duration = "1h",
    jitter: Jitter = "equal",
) -> RetryPolicy:
    """Return the policy that decides when a failed job is retried.

    Args:
        attempts: number of attempts, from 1 to 2147483647.
        base: delay after the first failure, as "10s" or a timedelta. A job retried without a delay
            keeps its place before later jobs.
        factor: factor by which each further delay grows, at least 1.
        cap: maximum delay, as "1h" or a timedelta.
        jitter: "equal" waits half the delay plus a random part of the rest, "full" a random part of
            all of it, "none" exactly the delay.

    Raises:
        InvalidValue: an argument is out of range.
    """
    if type(attempts) is not int or not 1 <= attempts <= MAX_ATTEMPTS:
        message = f"Backoff: attempts is {attempts!r:.80}"
        raise InvalidValue(
            message,
            hint=f"use a whole number from 1 to {MAX_ATTEMPTS}; the first run counts as an attempt",
        )
    if type(factor) not in {int, float} or not 1 <= factor <= 1000:
        message = f"Backoff: factor is {factor!r:.80}"
        raise InvalidValue(message, hint="from 1 (constant) to 1000")
    if jitter not in JITTERS:
        message = f"Backoff: jitter is {jitter!r}"
        raise InvalidValue(message, hint="full, equal or none")
    base_ms = check_duration("Backoff: base", base)
    cap_ms = check_duration("Backoff: cap", cap)
    if cap_ms < base_ms:
        message = f"Backoff: cap {format_duration(cap_ms)} is below base {format_duration(base_ms)}"
        raise InvalidValue(message, hint="raise the cap or lower the base")
    return RetryPolicy(
        attempts=attempts, base_ms=base_ms, factor=float(factor), cap_ms=cap_ms, jitter=jitter
    )
