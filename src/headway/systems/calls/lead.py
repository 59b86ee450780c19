"""A lead as users of this system see it, with the outcomes of its calls, derived from its job.

Also the names that the parts of this system share: kinds, stages, lanes.
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
from headway.systems.telephony.voice import CallStatus, call_of

LEAD, FINISHED = "lead", "lead_finished"
"""The kinds of a lead, and of what follows its end."""
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
"""With this begins the reason of a run whose call was never placed: it is no attempt."""

_WORDS = {str(one): one for one in Outcome} | {
    # Your own table said so when the lead was to be called.
    "NOT_OURS": Outcome.ABORT,
    # The engine's own reason: no end was reported, and no worker could ask for it.
    "deadline": Outcome.WEBHOOK_LOST,
}
"""What reasons begin with."""


def reason_of(outcome: Outcome, detail: str = "") -> str:
    """Return an outcome as it stands in a job's reason."""
    return f"{outcome}: {detail}"[:200] if detail else str(outcome)


def outcome_in(reason: str) -> Outcome | None:
    """Return the outcome that a reason begins with; None if it begins with none."""
    return _WORDS.get(reason.partition(":")[0].strip())


class LeadArgs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments of the kind `lead`.

    Attributes:
        phone: E.164.
        tz: the IANA zone of who is called.
        template: name of the template.
        payload: whatever the template's schema lets pass; None for nothing.
        reporting_webhook_url: receives the result; None for no report.
        row: of your own table, where that is the truth; else empty.
    """

    phone: str
    tz: str
    template: str = DEFAULT
    payload: Any = None
    reporting_webhook_url: str | None = None
    row: str = ""


read_args = msgspec.json.Decoder(LeadArgs).decode
"""The arguments of a stored lead."""


REPEATED = frozenset({"next", "released", "snoozed", "unused"})
"""Outcomes of runs after which a job runs again in the same attempt."""


class LeadStatus(StrEnum):
    """The status of a lead."""

    BACKLOG = "BACKLOG"
    """It waits: for its moment, for its checks, for its gates, for its next attempt."""
    PROCESSING = "PROCESSING"
    """It is called."""
    FINISHED = "FINISHED"
    """It has its outcome, and is called no more."""


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

    A caller of other lanes can make a job of any kind there, and record with it what it likes.
    """
    return job.kind == LEAD and job.lane == LANE


def status_of(job: JobView) -> LeadStatus:
    """Return where a lead stands."""
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
        job: of the kind `lead`, with its runs.
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
    """Return the calls of a lead, oldest first; a run whose call was never placed is none."""
    called = [run for run in job.runs if is_attempt(run)]
    return tuple(_attempt(job, run, n) for n, run in enumerate(called, 1))


def is_attempt(run: RunView) -> bool:
    """Return whether a run has asked a provider to call, as far as is known."""
    return run.handed_at is not None and not was_not_placed(run)


def was_not_placed(run: RunView) -> bool:
    """Return whether a run ended because its call was never placed."""
    return run.error.startswith(NOT_PLACED)


def this_life(job: JobView) -> Sequence[RunView]:
    """Return the runs since an operator last gave the lead another life, or all."""
    last = 0
    for place, (run, after) in enumerate(pairwise(job.runs), 1):
        # Within a life the next attempt has a higher number. A life may also end between two runs.
        if after.attempt <= run.attempt and run.outcome not in REPEATED:
            last = place
    return job.runs[last:]


def _attempt(job: JobView, run: RunView, n: int) -> Attempt:
    call = call_of(run)
    reason = job.reason if run is job.runs[-1] and job.state in FINAL else run.error
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
class Verdict:
    """What an outcome makes of its lead.

    Attributes:
        final: as a signal or a reconcile handler says it.
        reason: begins with the outcome; empty for an answered call.
        after_ms: of a retry: when, from now.
    """

    final: Literal["succeeded", "retry", "dead"]
    reason: str
    after_ms: int = 0


def judge(
    job: JobView, run: int, template: Template, outcome: Outcome, detail: str = ""
) -> Verdict:
    """Return what the outcome of a call makes of its lead.

    Args:
        job: the lead's, with its runs.

    Returns:
        A further attempt if the template wants one after this outcome and some are left. Else the
        job has succeeded, whatever the provider reported of the call: dead is only one whose end
        never became known.
    """
    if outcome is Outcome.COMPLETED:
        return Verdict(final="succeeded", reason="")
    reason = reason_of(outcome, detail)
    if outcome in template.retry_on and calls_made(this_life(job), run) <= template.max_retry:
        offsets = cast("Mapping[str, int]", template.retry_offsets)
        after_ms = offsets.get(outcome, template.retry_offset)
        return Verdict(final="retry", reason=reason, after_ms=after_ms)
    final = "dead" if outcome is Outcome.WEBHOOK_LOST else "succeeded"
    return Verdict(final=final, reason=reason)


def calls_made(runs: Sequence[RunView], run: int) -> int:
    """Return how many calls these runs made, this one included; a number's refusal is no call."""
    return 1 + sum(
        is_attempt(one)
        and one.run != run
        and outcome_in(one.error) is not Outcome.NUMBER_UNAVAILABLE
        for one in runs
    )


def refusals(runs: Sequence[RunView]) -> int:
    """Return how many of these runs had a number from which the provider would not call."""
    return sum(outcome_in(one.error) is Outcome.NUMBER_UNAVAILABLE for one in runs)
