"""A lead with its calls and outcomes, derived from its job.

Also the names of kinds, stages and lanes that this system's modules share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, cast

import msgspec

from headway.contract.views import JobView, RunView
from headway.core.state import FINAL, State
from headway.systems.calls.template import DEFAULT, Template
from headway.systems.jobs import can_read
from headway.systems.telephony.voice import CallStatus, call_of

LEAD, FINISHED = "lead", "lead_finished"
"""The kinds of a lead, and of the follow-up of its end."""
CHECK, DIAL = "check", "dial"
"""The stages of a lead."""
LANE, AFTER = "calls", "calls.after"
"""The lanes of these kinds."""


class Outcome(StrEnum):
    """The outcome of a call, or of a lead that was never called."""

    COMPLETED = "COMPLETED"
    """The call was answered, and ended."""
    BUSY = "BUSY"
    """The line was busy."""
    NO_ANSWER = "NO_ANSWER"
    """It rang, and was not answered."""
    FAILED = "FAILED"
    """It could not be put through, or the provider refuses to call this phone."""
    ABORT = "ABORT"
    """It was cancelled."""
    WEBHOOK_LOST = "WEBHOOK_LOST"
    """No end was reported, and the provider does not know it at the deadline either."""
    NUMBER_UNAVAILABLE = "NUMBER_UNAVAILABLE"
    """The provider would not call from the number; no phone has rung."""
    PRECHECK_FAILED = "PRECHECK_FAILED"
    """A check before the call said no."""


OF_STATUS: Mapping[CallStatus, Outcome] = MappingProxyType(
    {
        CallStatus.COMPLETED: Outcome.COMPLETED,
        CallStatus.BUSY: Outcome.BUSY,
        CallStatus.NO_ANSWER: Outcome.NO_ANSWER,
        CallStatus.FAILED: Outcome.FAILED,
        CallStatus.CANCELED: Outcome.ABORT,
    }
)
"""The outcome of each status in which a call has ended."""

NOT_PLACED = "NOT_PLACED"
"""Starts the reason of a run whose call was never placed, which does not count as an attempt."""

_WORDS = {str(one): one for one in Outcome} | {
    # The row in the source table was not ours and pending just before the call.
    "NOT_OURS": Outcome.ABORT,
    # The engine's own reason: no end was reported, and no worker could query the provider.
    "deadline": Outcome.WEBHOOK_LOST,
}
"""Outcomes by the first word of a reason."""


def reason_of(outcome: Outcome, detail: str = "") -> str:
    """Return the reason of a job with this outcome, up to 200 characters."""
    return f"{outcome}: {detail}"[:200] if detail else str(outcome)


def outcome_in(reason: str) -> Outcome | None:
    """Return the outcome at the start of a reason; None if there is none."""
    return _WORDS.get(reason.partition(":")[0].strip())


class LeadArgs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments of the kind `lead`.

    Attributes:
        phone: E.164.
        tz: IANA time zone of the phone's owner.
        payload: any value that the template's schema allows.
        reporting_webhook_url: URL that receives the result; None for no report.
        row: id of the row in the source table; empty if there is none.
    """

    phone: str
    tz: str
    template: str = DEFAULT
    payload: Any = None
    reporting_webhook_url: str | None = None
    row: str = ""


read_args = msgspec.json.Decoder(LeadArgs).decode
"""Decode the arguments of a stored lead."""


REPEATED = frozenset({"next", "released", "snoozed", "unused"})
"""Outcomes of runs after which the attempt is repeated."""


class LeadStatus(StrEnum):
    """The status of a lead."""

    BACKLOG = "BACKLOG"
    """It waits for its due time, its checks, its gates or its next attempt."""
    PROCESSING = "PROCESSING"
    """It is being called."""
    FINISHED = "FINISHED"
    """It has an outcome, and is not called again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A call to a lead.

    Attributes:
        n: number of the attempt; 1 for the first.
        run: run of the job.
        call_id: id of the call at the provider; null if it returned none.
        number: number that the call was made from.
        provider: provider that placed the call; null if that is unknown.
        outcome: outcome of the call; null while it is in progress.
        detail: details of the outcome, as text; may be empty.
        started_at: just before the request to the provider.
        ended_at: when the call ended; null while it is in progress.
    """

    n: int
    run: int
    call_id: str | None
    number: str
    provider: str | None
    outcome: Outcome | None
    detail: str
    started_at: int
    ended_at: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Lead:
    """A lead.

    Attributes:
        id: id of the lead and of its job.
        status: status of the lead.
        outcome: outcome of the lead; null until it is finished.
        reason: explanation of the outcome by whatever decided it; for a waiting lead, that of its
            last attempt.
        reseller: reseller that it belongs to.
        phone: phone number to call.
        tz: time zone of the phone's owner.
        template: name of the template.
        key: key set by the caller; null if there is none.
        due_at: when it, or its next attempt, is due.
        created_at: when it was created.
        finished_at: when it was finished; null until then.
        attempt_count: number of calls so far.
        attempts: calls, oldest first.
        payload: data of the lead.
        reporting_webhook_url: URL that receives the result.
    """

    id: str
    status: LeadStatus
    outcome: Outcome | None
    reason: str
    reseller: str
    phone: str
    tz: str
    template: str
    key: str | None
    due_at: int
    created_at: int
    finished_at: int | None
    attempt_count: int
    attempts: tuple[Attempt, ...]
    payload: bytes | None
    reporting_webhook_url: str | None


def is_lead(job: JobView) -> bool:
    """Return whether a job is a lead.

    A caller of other lanes can create jobs of any kind there, with any content.
    """
    return job.kind == LEAD and job.lane == LANE and can_read(read_args, job)


def status_of(job: JobView) -> LeadStatus:
    """Return the status of a lead."""
    if job.state in FINAL:
        return LeadStatus.FINISHED
    held = job.state is State.AWAITING or (job.state is State.RUNNING and job.stage == DIAL)
    return LeadStatus.PROCESSING if held else LeadStatus.BACKLOG


def outcome_of(job: JobView) -> Outcome | None:
    """Return the outcome of a lead; None until it is finished."""
    match job.state:
        case State.SUCCEEDED:
            return outcome_in(job.reason) or Outcome.COMPLETED
        case State.CANCELLED:
            return Outcome.ABORT
        case State.DEAD:
            return outcome_in(job.reason) or Outcome.FAILED
        case _:
            return None


def lead_of(job: JobView) -> Lead:
    """Return a job as a lead.

    Args:
        job: a job of the kind `lead`, with its runs.
    """
    args = read_args(job.args)
    attempts = attempts_of(job)
    return Lead(
        id=job.id,
        status=status_of(job),
        outcome=outcome_of(job),
        reason=job.reason,
        reseller=job.tenant,
        phone=args.phone,
        tz=args.tz,
        template=args.template,
        key=job.key,
        due_at=job.due_at,
        created_at=job.created_at,
        finished_at=job.finished_at,
        attempt_count=len(attempts),
        attempts=attempts,
        payload=None if args.payload is None else msgspec.json.encode(args.payload),
        reporting_webhook_url=args.reporting_webhook_url,
    )


def attempts_of(job: JobView) -> tuple[Attempt, ...]:
    """Return the calls of a lead, oldest first, without runs whose call was never placed."""
    called = [run for run in job.runs if is_attempt(run)]
    return tuple(_attempt(job, run, n) for n, run in enumerate(called, 1))


def is_attempt(run: RunView) -> bool:
    """Return whether a run has requested a call, as far as is known."""
    return run.handed_at is not None and not was_not_placed(run)


def was_not_placed(run: RunView) -> bool:
    """Return whether a run ended because its call was never placed."""
    return run.error.startswith(NOT_PLACED)


def this_life(job: JobView) -> Sequence[RunView]:
    """Return the runs of the lead's current life: since an operator last retried it, or all."""
    last = 0
    for place, (run, after) in enumerate(pairwise(job.runs), 1):
        # Within a life, attempt numbers only repeat after such an outcome. A life may also end
        # between two runs.
        if after.attempt <= run.attempt and run.outcome not in REPEATED:
            last = place
    return job.runs[last:]


def _attempt(job: JobView, run: RunView, n: int) -> Attempt:
    call = call_of(run)
    reason = run.error
    if run is job.runs[-1] and job.state in FINAL and outcome_in(reason) is None:
        reason = job.reason
    outcome = _outcome(job, run, reason)
    has_detail = outcome is not None and outcome_in(reason) is outcome
    return Attempt(
        n=n,
        run=run.run,
        call_id=None if call is None else call[1],
        number=next((member for member in run.permits.values() if member), ""),
        provider=None if call is None else call[0],
        outcome=outcome,
        detail=reason.partition(":")[2].strip() if has_detail else "",
        started_at=run.handed_at or 0,
        ended_at=run.ended_at,
    )


def _outcome(job: JobView, run: RunView, reason: str) -> Outcome | None:
    if not run.outcome:
        return None
    found = outcome_in(reason)
    if found is not None:
        return found
    if run.outcome == "succeeded":
        return Outcome.COMPLETED
    cancelled = run is job.runs[-1] and job.state is State.CANCELLED
    return Outcome.ABORT if cancelled else Outcome.FAILED


@dataclass(frozen=True, kw_only=True, slots=True)
class _Verdict:
    """How a lead continues after an outcome.

    Attributes:
        final: as in signals and in the replies of reconcile handlers.
        reason: starts with the outcome; empty for an answered call.
        after_ms: delay of a retry, from now.
    """

    final: Literal["succeeded", "retry", "dead"]
    reason: str
    after_ms: int = 0


def judge(
    job: JobView, run: int, template: Template, outcome: Outcome, detail: str = ""
) -> _Verdict:
    """Return how a lead continues after the outcome of a call.

    Args:
        job: the lead's job, with its runs.

    Returns:
        A retry if the template wants one after this outcome and attempts are left. Otherwise the
        job has succeeded, whatever the provider reported; it is dead only if the end of the call
        never became known.
    """
    if outcome is Outcome.COMPLETED:
        return _Verdict(final="succeeded", reason="")
    reason = reason_of(outcome, detail)
    if outcome in template.retry_on and calls_made(this_life(job), run) <= template.max_retry:
        offsets = cast("Mapping[str, int]", template.retry_offsets)
        after_ms = offsets.get(outcome, template.retry_offset)
        return _Verdict(final="retry", reason=reason, after_ms=after_ms)
    final = "dead" if outcome is Outcome.WEBHOOK_LOST else "succeeded"
    return _Verdict(final=final, reason=reason)


def calls_made(runs: Sequence[RunView], run: int) -> int:
    """Return the number of calls in these runs, including `run`; a refused number is no call."""
    return 1 + sum(
        is_attempt(one)
        and one.run != run
        and outcome_in(one.error) is not Outcome.NUMBER_UNAVAILABLE
        for one in runs
    )


def refusals(runs: Sequence[RunView]) -> int:
    """Return the number of these runs in which the provider refused to call from the number."""
    return sum(outcome_in(one.error) is Outcome.NUMBER_UNAVAILABLE for one in runs)
