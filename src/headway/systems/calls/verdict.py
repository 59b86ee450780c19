"""Verdicts: what an outcome makes of its lead, by the template as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headway.contract.views import JobView, RunView
from headway.systems.calls.lead import is_attempt, this_life
from headway.systems.calls.outcome import Outcome, outcome_in, reason_of
from headway.systems.calls.template import Template


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What an outcome makes of its lead.

    Attributes:
        final: as a signal or a reconcile handler says it.
        reason: begins with the outcome.
        after_ms: of a retry: when, from now.
    """

    final: Literal["succeeded", "retry", "dead"]
    reason: str
    after_ms: int = 0


def judge(
    job: JobView, run: int, template: Template, outcome: Outcome, detail: str = ""
) -> Verdict:
    """What the outcome of a call makes of its lead.

    Args:
        job: the lead's, with its runs.
        run: of the call.
        template: the lead's, as it is now.
        outcome: of the call.
        detail: for people.

    Returns:
        A further attempt if the template wants one after this outcome and some are left.
    """
    if outcome is Outcome.COMPLETED:
        return Verdict(final="succeeded", reason=str(outcome))
    reason = reason_of(outcome, detail)
    if outcome in template.retry_on and calls_made(this_life(job), run) <= template.max_retry:
        after_ms = template.retry_offsets_ms.get(outcome, template.retry_offset_ms)
        return Verdict(final="retry", reason=reason, after_ms=after_ms)
    return Verdict(final="dead", reason=reason)


def calls_made(runs: Sequence[RunView], run: int) -> int:
    """How many calls these runs made, this one included; a number's refusal is no call."""
    return 1 + sum(
        is_attempt(one)
        and one.run != run
        and outcome_in(one.error) is not Outcome.NUMBER_UNAVAILABLE
        for one in runs
    )


def refusals(runs: Sequence[RunView]) -> int:
    """How many of these runs had a number from which the provider would not call."""
    return sum(outcome_in(one.error) is Outcome.NUMBER_UNAVAILABLE for one in runs)
