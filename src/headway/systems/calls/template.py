"""A template: a named configuration of calls, as it holds now for all leads that name it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.systems.calls.checks.options import CheckOptions
from headway.systems.calls.outcome import Outcome

DEFAULT = "default"
"""The template of leads that name none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallingHours:
    """When may be called, in the zone of each lead; as `hw.Hours` takes it."""

    spans: str
    days: str = "daily"
    exceptions: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Template:
    """A named configuration of calls.

    Attributes:
        name: of it.
        payload_schema: a JSON schema of what a lead carries; None for anything.
        initial_offset_ms: from intake to the due time of a lead that names no moment.
        hours: when may be called; None for always.
        numbers: the pool of numbers; None for the reseller's own, else the default pool.
        providers: tried in this order after the number's own, and only if that refused.
        checks: before any line is asked for, in this order.
        check_valid_ms: a check older than this at the dial is made again.
        checks_at: since when there are just these checks, ms UTC; 0 if they were always these.
        recheck_within_ms: for which a line is held, at most.
        retry_on: outcomes after which the lead is called again.
        max_retry: how often, at most.
        retry_offset_ms: when, counted from the end of the call.
        retry_offsets_ms: the same by outcome.
        customer_limit: of calls to one phone by this template, beside the house's; None for none.
        customer_per_ms: the window of that limit.
        say: what is said, with `{placeholders}` over the payload.
        fetch: instead: where the provider fetches what happens in the call.
        ring_s: how long it may ring.
        limit_s: the longest call; None for the provider's own limit.
    """

    name: str
    payload_schema: Mapping[str, Any] | None = None
    initial_offset_ms: int = 0
    hours: CallingHours | None = None
    numbers: str | None = None
    providers: tuple[str, ...] = ()
    checks: tuple[CheckOptions, ...] = ()
    check_valid_ms: int = 300_000
    checks_at: int = 0
    recheck_within_ms: int = 2_000
    retry_on: frozenset[Outcome] = frozenset({Outcome.BUSY, Outcome.NO_ANSWER, Outcome.FAILED})
    max_retry: int = 3
    retry_offset_ms: int = 300_000
    retry_offsets_ms: Mapping[Outcome, int] = field(default_factory=dict[Outcome, int])
    customer_limit: int | None = None
    customer_per_ms: int = 3_600_000
    say: str = "Hello."
    fetch: str | None = None
    ring_s: int = 30
    limit_s: int | None = None
