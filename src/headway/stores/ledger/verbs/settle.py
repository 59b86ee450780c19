"""Settle: write the outcomes of live runs, each checked on its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from headway.contract.outcomes import (
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
from headway.core.cascade import Answer
from headway.core.check import check_stage
from headway.core.errors import InvalidState, InvalidValue, KeyConflict, PayloadTooLarge
from headway.core.gates.spec import is_implicit
from headway.core.job import DEFAULT_POLICY, MAX_ERROR, MAX_REASON, MAX_RESULT
from headway.core.state import HELD, State
from headway.stores.ledger.attempts import another_stage, end_turn, enter, fail, stage_of
from headway.stores.ledger.ledger import NOTHING, Ledger, ReadAhead
from headway.stores.ledger.rows import JobRow, RunRow
from headway.stores.ledger.step import Step
from headway.stores.ledger.verbs.enqueue import check_batch
from headway.stores.ledger.verbs.signal import apply_kept, known_run, other_run

_STAYING = HandedOver | KnownAs | Returned
"""Outcomes after which the job still runs or awaits its end."""
UNREPORTED = frozenset({"lost", "unused", "forced"})
"""Outcomes that the run did not report itself."""


def settle(ledger: Ledger, request: SettleRequest) -> list[Verdict]:
    """See `Store.settle`."""
    (verdicts,) = settle_all(ledger, (request,))
    return verdicts


def settle_all(ledger: Ledger, requests: Sequence[SettleRequest]) -> list[list[Verdict]]:
    """Settle several requests in their order; see `Store.settle`.

    Raises:
        HeadwayError: one of them is refused; the step must be rolled back.
    """
    for request in requests:
        check_batch("settle", len(request.outcomes))
        check_outcomes(request.outcomes)
    ledger.read_ahead(read_ahead_of(requests))
    step = Step(ledger)
    verdicts: list[list[Verdict]] = []
    live: list[bool] = []
    rest: list[tuple[int, int]] = []
    for index, request in enumerate(requests):
        verdicts.append([Verdict.DONE] * len(request.outcomes))
        worker = ledger.workers.load(request.worker)
        live.append(worker is not None and not worker.lapsed and worker.lease_until > ledger.now)
        left = _finish_plain(step, request) if live[-1] else range(len(request.outcomes))
        rest += [(index, place) for place in left]
    if rest:
        _load(step, [requests[index].outcomes[place] for index, place in rest])
        _read_former_runs(step, [(requests[index], place, live[index]) for index, place in rest])
    for index, place in rest:
        request = requests[index]
        verdict = _settle_one(step, request.worker, request.outcomes[place], live=live[index])
        verdicts[index][place] = verdict
    if rest or step.releases:
        step.flush()
    return verdicts


def read_ahead_of(requests: Sequence[SettleRequest]) -> ReadAhead:
    """Return what settlements read before they load jobs."""
    outcomes = [
        one for request in requests for one in request.outcomes if type(one) is not Succeeded
    ]
    if not outcomes:
        return NOTHING
    return ReadAhead(
        keys=[one.key for one in outcomes if isinstance(one, HandedOver | KnownAs) and one.key],
        kept=[key for one in outcomes for key in _new_keys(one)],
        jobs=[one.job for one in outcomes],
    )


def _new_keys(outcome: Outcome) -> Sequence[str]:
    """Return the keys by which a run is known from now on."""
    if not isinstance(outcome, HandedOver | KnownAs) or not outcome.key:
        return ()
    own = f"{outcome.job}:{outcome.run}"
    return (own, outcome.key) if type(outcome) is HandedOver else (outcome.key,)


def _load(step: Step, outcomes: Sequence[Outcome]) -> None:
    """Load the jobs of outcomes, and read ahead what is needed to end those that may end."""
    kept = [(one.job, event) for one in outcomes for event in _read_early_events(step, one)]
    ending = {one.job for one in outcomes if not isinstance(one, _STAYING)}
    ending.update(job for job, _ in kept)
    jobs = dict.fromkeys(one.job for one in outcomes)
    for one in outcomes:
        known = known_run(step, one.key) if isinstance(one, HandedOver | KnownAs) else None
        if known is not None:
            jobs[known[0]] = None
    step.load(jobs, ReadAhead(events=kept), staying=jobs.keys() - ending)


def _read_early_events(step: Step, outcome: Outcome) -> list[str]:
    """Read the events that arrived for a run before it was known by its keys; return their ids."""
    for key in _new_keys(outcome):
        step.kept[key] = step.ledger.signals.kept(key)
    return [one.event for key in _new_keys(outcome) for one in step.kept[key]]


def _read_former_runs(step: Step, rest: Sequence[tuple[SettleRequest, int, bool]]) -> None:
    """Read ahead the former runs of jobs whose outcome is not that of a live run."""
    stale = [
        row.id
        for request, place, live in rest
        if (row := step.row(request.outcomes[place].job)) is not None
        and not _is_own(row, request.worker, request.outcomes[place], live=live)
    ]
    if stale:
        step.ledger.read_ahead(ReadAhead(runs=stale))


def _is_own(row: JobRow, worker: str, outcome: Outcome, *, live: bool) -> bool:
    return live and row.state in HELD and row.run == outcome.run and row.worker == worker


def check_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Validate outcomes.

    Raises:
        InvalidValue: a failed one has gates without a stage, or an invalid stage.
    """
    for outcome in outcomes:
        if type(outcome) is Failed:
            check_stage(f"the outcome of job {outcome.job}", outcome.stage, outcome.gates)


def _finish_plain(step: Step, request: SettleRequest) -> Collection[int]:
    """Write the frequent case in bulk: successes of jobs that need no care.

    Returns:
        The indexes of the remaining outcomes.
    """
    left = set(range(len(request.outcomes)))
    places = request.plain()
    if not places:
        return left
    runs = [(request.outcomes[place].job, request.outcomes[place].run) for place in places]
    ledger = step.ledger
    purge_at = ledger.now + DEFAULT_POLICY.keep_ms
    lanes, gated = ledger.jobs.finish_plain(request.worker, runs, purge_at)
    for place, lane in zip(places, lanes, strict=True):
        if lane is not None:
            left.remove(place)
    # A lane's name is never empty.
    for lane, n in Counter(filter(None, lanes)).items():
        ledger.counts.move(lane, State.RUNNING, State.SUCCEEDED, n)
        ledger.counts.happened("succeeded", n)
    if gated:
        step.releases += [
            (job, None, None) for (job, _), lane in zip(runs, lanes, strict=True) if lane
        ]
    return sorted(left)


def _settle_one(step: Step, worker: str, outcome: Outcome, *, live: bool) -> Verdict:
    row = step.row(outcome.job)
    if row is None:
        return Verdict.LOST
    if not _is_own(row, worker, outcome, live=live):
        return _verdict_of_ended(step, worker, row, outcome)
    cancelled = row.cancel_requested
    verdict = _APPLY[type(outcome)](step, row, outcome)
    if verdict is Verdict.DONE:
        if not (cancelled and type(outcome) is HandedOver):
            # The jobs to follow a refused hand-over would touch the outside world.
            step.then.extend(outcome.then)
        step.close(outcome.close, f"job {row.id}")
        if cancelled and row.state is State.CANCELLED:
            return Verdict.CANCELLED
    return verdict


def _verdict_of_ended(step: Step, worker: str, row: JobRow, outcome: Outcome) -> Verdict:
    """Return ALREADY for a run that its own worker settled, and LOST for any other."""
    if isinstance(outcome, HandedOver | GaveBack | KnownAs):
        # With ALREADY the handler would continue, even after a deadline, a cancel or a signal.
        return Verdict.LOST
    if row.run == outcome.run and row.last_worker == worker:
        awaits = row.state is State.AWAITING and not row.in_doubt
        has_returned = awaits and isinstance(outcome, Returned)
        was_reported = bool(row.state not in HELD and row.outcome and row.outcome not in UNREPORTED)
        if has_returned or was_reported:
            return Verdict.ALREADY
    # A run that this step ended is not written yet.
    if _has_ended(step.runs, worker, outcome):
        return Verdict.ALREADY
    written = step.ledger.jobs.runs([row.id]).get(row.id, ())
    return Verdict.ALREADY if _has_ended(written, worker, outcome) else Verdict.LOST


def _has_ended(runs: Iterable[RunRow], worker: str, outcome: Outcome) -> bool:
    """Return whether a worker's run is among those that ended with a reported outcome."""
    return any(
        run.job == outcome.job
        and run.run == outcome.run
        and run.worker == worker
        and run.outcome not in UNREPORTED
        for run in runs
    )


# One function per kind of outcome


def _succeeded(step: Step, row: JobRow, outcome: Succeeded) -> Verdict:
    if row.state is State.AWAITING:
        # After a hand-over only a signal settles; a return is only recorded.
        return _returned(step, row, Returned(outcome.job, outcome.run))
    check_result(outcome.result)
    step.end(row, State.SUCCEEDED, "succeeded", result=outcome.result)
    return Verdict.DONE


def _failed(step: Step, row: JobRow, outcome: Failed) -> Verdict:
    error = _cut(outcome.error, MAX_ERROR)
    policy = step.ledger.jobs.policy(row.policy)
    due_at = _moment(step, outcome.after_ms, outcome.until_at)
    stage = another_stage(step, row, outcome.stage, outcome.gates)
    if due_at is None or policy.retry.exhausted(row.attempt):
        fail(step, row, "failed", error, reason=outcome.line or "failed")
    else:
        step.ledger.counts.happened("retried")
        row.reason = outcome.line
        step.requeue(row, "failed", due_at=due_at, repeat=False, error=error)
    enter(step, row, stage)
    step.ledger.counts.happened("failed")
    return Verdict.DONE


def _died(step: Step, row: JobRow, outcome: Died) -> Verdict:
    reason, error = _cut(outcome.reason, MAX_REASON), _cut(outcome.error, MAX_ERROR)
    step.end(row, State.DEAD, "dead", reason=reason, error=error)
    return Verdict.DONE


def _snoozed(step: Step, row: JobRow, outcome: Snoozed) -> Verdict:
    due_at = _moment(step, outcome.after_ms, outcome.until_at)
    if due_at is None:
        message = f"job {row.id} was snoozed without a delay or a time"
        raise InvalidValue(message, hint="pass one of them")
    row.reason = _cut(outcome.reason, MAX_REASON) or row.reason
    step.requeue(row, "snoozed", due_at=due_at, repeat=True)
    step.ledger.counts.happened("snoozed")
    return Verdict.DONE


def _released(step: Step, row: JobRow, outcome: Released) -> Verdict:
    if row.state is State.AWAITING:
        return _returned(step, row, Returned(outcome.job, outcome.run))
    step.requeue(row, "released", due_at=None, repeat=True)
    return Verdict.DONE


def _next_stage(step: Step, row: JobRow, outcome: NextStage) -> Verdict:
    stage = stage_of(step, row, outcome.stage, outcome.gates)
    step.requeue(row, "next", due_at=None, repeat=True)
    enter(step, row, stage)
    return Verdict.DONE


def _unfit(step: Step, row: JobRow, outcome: FoundUnfit) -> Verdict:
    if row.accepted:
        # The turn is over; the handler's outcome is only recorded.
        return _returned(step, row, Returned(outcome.job, outcome.run))
    end_turn(step, row, Answer.UNFIT, _cut(outcome.reason, MAX_REASON))
    return Verdict.DONE


def _handed_over(step: Step, row: JobRow, outcome: HandedOver) -> Verdict:
    if not outcome.key:
        message = f"job {row.id} was handed over without a key"
        raise InvalidValue(message, hint="pass the key of the signal that will report its end")
    if row.state is State.AWAITING:
        known = step.ledger.signals.known(outcome.key)
        is_own = known is not None and known == (row.id, row.run)
        return Verdict.ALREADY if is_own else Verdict.LOST
    if row.cancel_requested:
        # A cancel was requested, and nothing has happened outside yet.
        step.end(row, State.CANCELLED, "cancelled", reason="cancelled")
        return Verdict.DONE
    _refuse_anothers_key(step, row, outcome.key)
    now = step.ledger.now
    step.move(row, State.AWAITING)
    row.handed_at, row.deadline_at = now, now + max(1, outcome.timeout_ms)
    row.error, row.care = "", True
    step.give_back(row, hold="run")
    step.ledger.counts.happened("handed_over")
    step.ledger.signals.make_known(f"{row.id}:{row.run}", row.id, row.run)
    _make_known(step, row, outcome.key)
    apply_kept(step, row, f"{row.id}:{row.run}")
    return Verdict.DONE


def _known_as(step: Step, row: JobRow, outcome: KnownAs) -> Verdict:
    if not outcome.key:
        message = f"the key for job {row.id} is empty"
        raise InvalidValue(message, hint="pass the provider's id")
    _refuse_anothers_key(step, row, outcome.key)
    _make_known(step, row, outcome.key)
    return Verdict.DONE


def _refuse_anothers_key(step: Step, row: JobRow, key: str) -> None:
    other = other_run(step, row, key)
    if other is not None:
        message = f"the key {key!r} names run {other[1]} of job {other[0]}, which has not ended"
        raise KeyConflict(
            message, hint="use a key that belongs to this run only, such as the provider's id"
        )


def _make_known(step: Step, row: JobRow, key: str) -> None:
    step.ledger.signals.make_known(key, row.id, row.run)
    apply_kept(step, row, key)


def _returned(step: Step, row: JobRow, outcome: Returned) -> Verdict:
    if row.state is State.RUNNING:
        message = f"job {row.id} has not handed over, so its handler's return cannot be recorded"
        raise InvalidState(message, hint="report how it ended: succeeded, failed, …")
    row.last_worker, row.worker = row.worker or "", None
    if outcome.error:
        row.error = _cut(outcome.error, MAX_ERROR)
    step.changed(row)
    return Verdict.DONE


def _gave_back(step: Step, row: JobRow, outcome: GaveBack) -> Verdict:
    # If an implicit gate has no limit, the run took nothing there.
    if outcome.gate not in row.members and not is_implicit(outcome.gate):
        message = f"job {row.id} did not pass the gate {outcome.gate!r}"
        raise InvalidValue(message, hint="give back one of its gates, by its resolved name")
    step.give_back(row, gate=outcome.gate)
    step.changed(row)
    return Verdict.DONE


_APPLY: dict[type[Outcome], Callable[..., Verdict]] = {
    Succeeded: _succeeded,
    Failed: _failed,
    Died: _died,
    Snoozed: _snoozed,
    Released: _released,
    NextStage: _next_stage,
    FoundUnfit: _unfit,
    HandedOver: _handed_over,
    KnownAs: _known_as,
    Returned: _returned,
    GaveBack: _gave_back,
}


def check_result(result: bytes | None) -> None:
    """Check the size of a result.

    Raises:
        PayloadTooLarge: it is too large.
    """
    if result is not None and len(result) > MAX_RESULT:
        message = f"the result has {len(result)} bytes"
        raise PayloadTooLarge(message, hint=f"at most {MAX_RESULT}; keep it elsewhere")


def _moment(step: Step, after_ms: int | None, until_at: int | None) -> int | None:
    if until_at is not None:
        return until_at
    return None if after_ms is None else step.ledger.now + max(0, after_ms)


def _cut(text: str, most: int) -> str:
    return text[:most]
