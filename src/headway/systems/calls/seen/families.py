"""The families of the metrics of calls."""

from __future__ import annotations

from headway.server.metrics.families import Family, counter, gauge

_LATELY = "of the calls of the last five minutes, of the newest 500 leads at most"
_COUNTED = "counted by all processes in the directory, each a second later"

DUE_TO_DIAL = gauge(
    "calls_due_to_dial_seconds",
    "From due to dial, waits behind gates left out as far as the claims that found them shut tell; "
    f"{_LATELY}.",
    "quantile",
)
GATE_WAIT = gauge(
    "calls_gate_wait_seconds", f"The waits that were left out; {_LATELY}.", "quantile"
)
LINES = gauge("calls_lines", "Channels of the number; 0 for one that is switched off.", "number")
LINES_USED = gauge("calls_lines_used", "Channels of the number under calls.", "number")
NUMBER_USABLE = gauge(
    "calls_number_usable", "Whether calls may be made from the number: 1 or 0.", "number"
)
OVERDUE = gauge("calls_overdue", "Leads that are due and wait, parked ones included.")
READY = gauge(
    "calls_ready",
    "Of these, those that could go at once: every shared gate that they need is open; of many, by "
    "a sample.",
)
LARGEST = gauge(
    "calls_largest_reseller_ratio",
    "The largest share of waiting leads that one reseller has, 0 to 1; 0 while no other waits.",
)
WITHOUT_NUMBER = gauge(
    "calls_pools_without_number", "Pools for which leads wait, and of which no number can be used."
)
WORKERS = gauge("calls_workers", "Live workers that serve the lane of calls.")
OUTCOMES = counter("calls_attempts", f"Attempts that ended, by outcome; {_COUNTED}.", "outcome")
INTAKES = counter("calls_intakes", f"Requests that brought leads; {_COUNTED}.")
INTAKES_FAILED = counter(
    "calls_intakes_failed", f"Those of them that were answered with 500 or more; {_COUNTED}."
)
LOST = counter(
    "calls_webhooks_lost",
    f"Calls whose end had to be asked for, or never became known; {_COUNTED}.",
    "number",
)
LATE = counter(
    "calls_webhooks_late", f"Webhooks that came when their call was settled; {_COUNTED}.", "number"
)
TWICE = counter("calls_webhooks_twice", f"Webhooks that came again; {_COUNTED}.", "number")
ORPHAN = counter(
    "calls_webhooks_orphan", f"Webhooks of calls that nobody knows; {_COUNTED}.", "provider"
)
REPORTS_FAILED = counter(
    "calls_reports_failed", f"Tries to report a result to its caller that failed; {_COUNTED}."
)

FAMILIES: tuple[Family, ...] = (
    DUE_TO_DIAL,
    GATE_WAIT,
    LINES,
    LINES_USED,
    NUMBER_USABLE,
    OVERDUE,
    READY,
    LARGEST,
    WITHOUT_NUMBER,
    WORKERS,
    OUTCOMES,
    INTAKES,
    INTAKES_FAILED,
    LOST,
    LATE,
    TWICE,
    ORPHAN,
    REPORTS_FAILED,
)
"""All of them, in the order of the reference."""
