"""POST /v1/settlements and /v1/leases: settling runs, and renewing their leases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, assert_never

import msgspec
from fastapi import Response

from headway.contract.claims import BeatRequest
from headway.contract.outcomes import (
    Closing,
    Died,
    Failed,
    FoundUnfit,
    GaveBack,
    HandedOver,
    KnownAs,
    NextStage,
    Outcome,
    Released,
    Returned,
    SettleRequest,
    Snoozed,
    Succeeded,
    Verdict,
)
from headway.contract.views import JobsQuery, JobView
from headway.core.errors import IdConflict, InvalidValue, KeyConflict
from headway.core.gates.spec import GateUse
from headway.core.instant import Moment
from headway.core.job import NewJob, derived_id
from headway.runtime.worker.worker_options import check_lease
from headway.server.access import needs
from headway.server.bodies.work import (
    AnyOutcome,
    CloseBody,
    DeadBody,
    FailedBody,
    GaveBackBody,
    HandedOverBody,
    KnownAsBody,
    LeaseBody,
    NextStageBody,
    OutcomeBody,
    ReleasedBody,
    ReturnedBody,
    SettlementBody,
    SnoozedBody,
    SucceededBody,
    UnfitBody,
)
from headway.server.caller import Caller, Permission
from headway.server.hooks.signals import check_own_key
from headway.server.long_polling.claiming import LaneSelection, is_pattern
from headway.server.problems import named_by_body
from headway.server.replies import answer, reply
from headway.server.routing import TheService, router
from headway.server.sending import gate_uses, known_gates, make_jobs
from headway.server.service import Service
from headway.server.visibility import hide_conflict

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, object]).decode


async def settle_runs(
    service: Service, caller: Caller, worker: str, bodies: Sequence[AnyOutcome]
) -> list[Verdict]:
    """Settle runs of a caller's worker.

    Args:
        worker: the name of the worker within the caller's token.
        bodies: up to 1000 outcomes.

    Returns:
        Verdicts in the order of the outcomes; `lost` for a run that this worker does not hold.

    Raises:
        Forbidden: a job to create or a gate to close is outside the caller's scope.
        CallerError: an outcome is invalid; nothing was written.
    """
    name = caller.worker(worker)
    gates = await _gates_of_stages(service, name, bodies)
    outcomes: list[Outcome] = []
    for one in bodies:
        then = await _follow_ups(service, caller, name, one)
        close = tuple(_closing(caller, each) for each in one.close)
        outcomes.append(_outcome(one, then, close, gates))
    try:
        verdicts = await service.store.settle(SettleRequest(worker=name, outcomes=tuple(outcomes)))
    except (IdConflict, KeyConflict) as error:
        raise await hide_conflict(service, caller, error) from None
    service.long_polls.note_lanes({job.lane for outcome in outcomes for job in outcome.then})
    return verdicts


async def _follow_ups(
    service: Service, caller: Caller, worker: str, body: AnyOutcome
) -> tuple[NewJob, ...]:
    if not body.then:
        return ()
    # A repeated outcome creates the same jobs.
    what = getattr(body, "key", "") or getattr(body, "gate", "")
    repeat_key = derived_id("then", worker, body.job, body.run, body.outcome, what)
    return tuple(await make_jobs(service, caller, body.then, repeat_key=repeat_key))


def _closing(caller: Caller, body: CloseBody) -> Closing:
    caller.check_closing(body.gate)
    after_ms, until_at = _delay(body.after, body.until)
    return Closing(gate=body.gate, for_ms=after_ms, until_at=until_at, reason=body.reason)


def _delay(after: int | None, until: Moment | None) -> tuple[int | None, int | None]:
    """Return a delay in ms, or a time; `until` takes precedence, as everywhere."""
    if until is None:
        return after, None
    return (None, until.at) if until.after_ms is None else (until.after_ms, None)


def _outcome(  # noqa: C901, PLR0911, PLR0912  (one line for each outcome)
    body: AnyOutcome,
    then: tuple[NewJob, ...],
    close: tuple[Closing, ...],
    gates: Mapping[tuple[str, str], tuple[GateUse, ...]],
) -> Outcome:
    job, run = body.job, body.run
    match body:
        case SucceededBody():
            result = None if body.result is None else _encode(body.result)
            return Succeeded(job, run, then, close, result)
        case FailedBody():
            return Failed(job, run, then, close, body.error, *_delay(body.after, body.until))
        case DeadBody():
            return Died(job, run, then, close, body.reason or "failed", body.error)
        case SnoozedBody():
            return Snoozed(job, run, then, close, *_delay(body.after, body.until), body.reason)
        case NextStageBody():
            return NextStage(job, run, then, close, body.stage, gates.get((job, body.stage), ()))
        case ReleasedBody():
            return Released(job, run, then, close, body.reason)
        case HandedOverBody():
            check_own_key(job, body.key)
            return HandedOver(job, run, then, close, body.key, body.timeout)
        case KnownAsBody():
            check_own_key(job, body.key)
            return KnownAs(job, run, then, close, body.key)
        case ReturnedBody():
            return Returned(job, run, then, close, body.error)
        case GaveBackBody():
            return GaveBack(job, run, then, close, body.gate)
        case UnfitBody():
            return FoundUnfit(job, run, then, close, body.reason)
        case _:
            assert_never(body)


async def _gates_of_stages(
    service: Service, worker: str, bodies: Iterable[OutcomeBody]
) -> dict[tuple[str, str], tuple[GateUse, ...]]:
    """Return the gates of the next stages, by job and stage; names are filled in from arguments."""
    stages = [one for one in bodies if isinstance(one, NextStageBody)]
    if not stages:
        return {}
    ids = tuple({one.job for one in stages})
    page = await service.store.read(JobsQuery(ids=ids, limit=len(ids)))
    # Jobs of other workers get the verdict `lost` in any case.
    jobs = {job.id: job for job in page.rows if job.worker == worker}
    held = [one for one in stages if one.job in jobs]
    return {(one.job, one.stage): await _uses(service, jobs[one.job], one) for one in held}


async def _uses(service: Service, job: JobView, body: NextStageBody) -> tuple[GateUse, ...]:
    kind = service.app.kinds.get(job.kind) if service.app is not None else None
    ours = None if kind is None else kind.uses(body.stage, job.lane, job.tenant, job.args)
    if body.gates is None:
        return ours or ()
    known = await known_gates(service.gates, body.gates)
    named = {"tenant": job.tenant, "lane": job.lane, "kind": job.kind}
    values = {**_decode(job.args), **named}
    theirs = gate_uses(body.gates, known, values, cascade=job.cascade is not None)
    if ours is not None and set(ours) != set(theirs):
        message = f"{job.kind}: the kind itself defines the gates of its stage {body.stage!r}"
        raise InvalidValue(message, hint="omit them; the server's App declares this kind")
    return theirs


ROUTES = router("work")

_REPLY = reply(
    "Settlement",
    "The verdicts on a worker's outcomes.",
    verdicts=(
        list[Verdict],
        "Verdicts, in the order of the outcomes. done: it was written. already: this run had "
        "already reported it. lost: the run is no longer live, and nothing was written. cancelled: "
        "it was written, but the job is cancelled because that was requested.",
    ),
)


@ROUTES.post("/v1/settlements", summary="Settle runs", response_model=_REPLY)
async def settle(
    service: TheService,
    caller: Annotated[Caller, needs(Permission.WORK)],
    body: SettlementBody,
) -> Response:
    """Write the outcomes of live runs, with everything that follows from them in the same step.

    Each outcome is checked separately: the job must be held by this worker of your token, in this
    run, with a live lease. Otherwise the verdict is `lost`, and nothing is written. This is safe to
    repeat. An error rejects all outcomes of the request; send them one by one to get the others
    written.
    """
    with named_by_body():
        verdicts = await settle_runs(service, caller, body.worker, body.outcomes)
    return answer({"verdicts": verdicts})


_RUN = reply("Run", "A run of a job.", job=(str, "Id of the job."), run=(int, "Number of the run."))
_LEASE_REPLY = reply(
    "Lease",
    "What a worker needs to know.",
    now=(int, "Current time of the store."),
    lease_until=(int, "When the lease of its runs ends."),
    lost=(list[_RUN], "Runs that are no longer live: stop them, and write nothing."),
    cancel=(list[_RUN], "Runs of jobs whose cancellation was requested: stop and settle them."),
)


@ROUTES.post("/v1/leases", summary="Keep leases", response_model=_LEASE_REPLY)
async def beat(
    service: TheService,
    caller: Annotated[Caller, needs(Permission.WORK, own_limit=True)],
    body: LeaseBody,
) -> Response:
    """Keep the leases of all runs of a worker; workers usually do this three times in each lease.

    A lease that has ended is not revived: its runs are returned as lost, and their jobs are
    retried. With `leaving`, jobs that the worker holds and does not list are handed back.
    """
    progress = ((one.job, one.run, one.encoded_progress()) for one in body.running)
    result = await service.store.beat(
        BeatRequest(
            worker=caller.worker(body.worker),
            running=tuple((one.job, one.run) for one in body.running),
            request=body.request,
            lease_ms=check_lease("the lease", body.lease),
            lanes=await _served(service, caller, body.lanes),
            name=body.name,
            progress=tuple((job, run, data) for job, run, data in progress if data is not None),
            leaving=body.leaving,
        )
    )
    return answer(
        {
            "now": result.now,
            "lease_until": result.lease_until,
            "lost": [{"job": job, "run": run} for job, run in result.lost],
            "cancel": [{"job": job, "run": run} for job, run in result.cancel],
        }
    )


async def _served(service: Service, caller: Caller, lanes: list[str]) -> tuple[str, ...]:
    """Return the names of the lanes that a worker serves, with patterns expanded."""
    if not lanes:
        return ()
    for lane in lanes:
        if not is_pattern(lane):
            caller.check_lane(lane)
    wanted = LaneSelection(
        lanes=tuple((lane, 1) for lane in dict.fromkeys(lanes)), reach=caller.lanes
    )
    return await service.long_polls.expand(wanted)
