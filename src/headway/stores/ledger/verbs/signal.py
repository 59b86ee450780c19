"""Signals: an external event is applied once, kept for its run, or refused as late."""

from __future__ import annotations

from collections.abc import Sequence

from headway.contract.signals import Decided, Signal, SignalKind, SignalReply, SignalResult
from headway.core.cascade import Answer
from headway.core.check import check_stage, is_job_id, read_reference
from headway.core.errors import InvalidValue, StoreUnavailable
from headway.core.naming import check_name, check_note, check_text
from headway.core.state import HELD, State
from headway.stores.ledger.attempts import accept, another_stage, end_turn, enter, fail
from headway.stores.ledger.insert import make_ready
from headway.stores.ledger.ledger import Ledger, ReadAhead
from headway.stores.ledger.packing import decode_signal, encode_signal
from headway.stores.ledger.rows import JobRow, SignalRow, TrailRow
from headway.stores.ledger.step import Step

KEPT_MS = 3_600_000
"""How long an event is kept for its run."""
KEPT_MOST = 100_000
"""Most events that are kept at once."""
_ANSWERS = frozenset({Decided.ACCEPTED, Decided.DECLINED})
"""How a candidate answers an offer."""


def signal(ledger: Ledger, event: Signal) -> SignalReply:
    """See `Store.signal`."""
    (reply,) = signals(ledger, (event,))
    return reply


def signals(ledger: Ledger, events: Sequence[Signal]) -> list[SignalReply]:
    """Apply several signals in their order; see `Store.signal`.

    Raises:
        HeadwayError: one of them is refused; the step must be rolled back.
    """
    for event in events:
        check_signal(event)
    step = Step(ledger)
    ledger.read_ahead(read_ahead_of(events))
    runs = [known_run(step, event.key) for event in events]
    scopes = [(run[0], one.event) for run, one in zip(runs, events, strict=True) if run]
    owners = [known_run(step, event.known_as) for event in events if event.known_as]
    jobs = dict.fromkeys(run[0] for run in (*runs, *owners) if run)
    step.load(jobs, ReadAhead(events=scopes), staying=jobs.keys() - {job for job, _ in scopes})
    replies: list[SignalReply] = []
    for event in events:
        found = _find_run(step, event.key)
        if found is None:
            replies.append(_keep(step, event, event.key))
        else:
            replies.append(_apply_new(step, event, *found))
    step.flush()
    return replies


def read_ahead_of(events: Sequence[Signal]) -> ReadAhead:
    """Return what signals read before they load jobs."""
    refs = [(event.key.partition(":")[0], event.event) for event in events]
    own = [ref for ref in refs if is_job_id(ref[0])]
    return ReadAhead(
        keys=[key for event in events for key in (event.key, event.known_as) if key],
        kept=[event.known_as for event in events if event.known_as],
        events=[*((event.key, event.event) for event in events), *own],
        jobs=[job for job, _ in own],
    )


def check_signal(event: Signal) -> None:
    """Validate a signal.

    Raises:
        InvalidValue: a name or another text is invalid, the body is too large, or there is a
            stage but no retry.
    """
    check_name("signal key", event.key)
    check_name("event id", event.event)
    if event.known_as:
        check_name("key", event.known_as)
    check_note("reason", event.reason)
    check_note("label", event.label)
    check_text("candidate", event.candidate)
    if event.body is not None and len(event.body) > 1_000_000:
        message = f"the body of event {event.event!r} has {len(event.body)} bytes"
        raise InvalidValue(message, hint="at most 1000000")
    check_stage(f"event {event.event!r}", event.stage, event.gates)
    if event.stage and (event.kind, event.decided) != (SignalKind.FINAL, Decided.RETRY):
        message = f"event {event.event!r} has a stage, but does not start another attempt"
        raise InvalidValue(message, hint="only a final retry can have a stage")


def known_run(step: Step, key: str) -> tuple[str, int] | None:
    """Return the (job, run) that a key names."""
    known = step.ledger.signals.known(key)
    # A job's own reference is valid from its claim on, even before it hands over.
    return read_reference(key) if known is None else known


def other_run(step: Step, row: JobRow, key: str) -> tuple[str, int] | None:
    """Return the live run of another job that a key names; the key must stay with that run."""
    known = known_run(step, key)
    if known is None or known[0] == row.id:
        return None
    other = step.row(known[0])
    is_live = other is not None and other.state in HELD and other.run == known[1]
    return known if is_live else None


def _find_run(step: Step, key: str) -> tuple[JobRow, int] | None:
    """Return the job that a key names, and the number of the run; None if there is no such run."""
    known = known_run(step, key)
    if known is None:
        return None
    row = step.row(known[0])
    return None if row is None or known[1] > row.run else (row, known[1])


def _apply_new(step: Step, event: Signal, row: JobRow, run: int) -> SignalReply:
    before = _earlier_result(step, event, row)
    if before is not None:
        return SignalReply(answer=before, job=row.id, state=row.state)
    if row.run == run and row.state is State.RUNNING and event.kind is not SignalKind.NOTE:
        return _keep(step, event, event.key, row)
    answer = _apply(step, event, row, run, step.ledger.now)
    return SignalReply(answer=answer, job=row.id, state=row.state)


def _earlier_result(step: Step, event: Signal, row: JobRow) -> SignalResult | None:
    """Return the answer to an event that the job has already received; None for a new event."""
    known = step.ledger.signals.received(row.id, event.event)
    if known is None:
        return None
    if known.kept_until is None:
        return SignalResult.LATE if known.payload == SignalRow.LATE else SignalResult.ALREADY
    # It arrived for the job's bare id, which is not a key, and was kept in the job's own scope.
    early: SignalRow = known
    step.ledger.signals.drop([early])
    return None


def _keep(step: Step, event: Signal, scope: str, row: JobRow | None = None) -> SignalReply:
    signals = step.ledger.signals
    state = row.state if row is not None else None
    job = row.id if row is not None else None
    known = signals.received(scope, event.event)
    if known is not None:
        answer = SignalResult.KEPT if known.kept_until is not None else SignalResult.ALREADY
        return SignalReply(answer=answer, job=job, state=state)
    if signals.kept_count() >= KEPT_MOST:
        message = f"{KEPT_MOST} signals are kept for jobs that do not await them"
        raise StoreUnavailable(message, hint="send it again later")
    if event.stage:
        # When it is applied later, there is no caller to report an unknown gate to.
        make_ready(step.cache, row.kind if row is not None else "unknown", event.gates)
    now = step.ledger.now
    signals.save(
        SignalRow(
            scope=scope,
            event=event.event,
            key=event.key,
            at=now,
            kept_until=now + KEPT_MS,
            payload=encode_signal(event),
        )
    )
    return SignalReply(answer=SignalResult.KEPT, job=job, state=state)


def apply_kept(step: Step, row: JobRow, key: str) -> None:
    """Apply the events that arrived for a key before its run awaited them."""
    for kept in step.kept_events(key):
        event = decode_signal(kept.payload)
        # A note labels the job in any state, also after an event kept before it has ended the run.
        if row.state is State.AWAITING or event.kind is SignalKind.NOTE:
            step.ledger.signals.drop([kept])
            has_expired = kept.kept_until is not None and kept.kept_until <= step.ledger.now
            if not has_expired and _earlier_result(step, event, row) is None:
                _apply(step, event, row, row.run, kept.at)


def _apply(step: Step, event: Signal, row: JobRow, run: int, at: int) -> SignalResult:
    step.ledger.counts.happened("signals")
    if not event.known_as:
        return _apply_to_run(step, event, row, run, at)
    other = other_run(step, row, event.known_as)
    if other is not None:
        # What the event reports about its own run still applies.
        _note(step, row, event.reason, f"the key {event.known_as} names another job, {other[0]}")
        return _apply_to_run(step, event, row, run, at)
    step.ledger.signals.make_known(event.known_as, row.id, run)
    answer = _apply_to_run(step, event, row, run, at)
    if row.run == run:
        # Events that arrived for that key before it was known.
        apply_kept(step, row, event.known_as)
    return answer


def _apply_to_run(step: Step, event: Signal, row: JobRow, run: int, at: int) -> SignalResult:
    late = event.kind is not SignalKind.NOTE and (
        row.run != run
        or row.state is not State.AWAITING
        or _is_for_another_candidate(row, event)
        or _is_answered(row, event)
    )
    received = SignalRow(
        scope=row.id,
        event=event.event,
        key=event.key,
        at=at,
        payload=SignalRow.LATE if late else b"",
    )
    step.ledger.signals.save(received)
    if late:
        step.ledger.counts.happened("late_signals")
        return SignalResult.LATE
    if event.kind is SignalKind.NOTE:
        _note(step, row, event.reason, event.label or "note")
    elif event.kind is SignalKind.PROGRESS:
        _extend(step, event, row)
    else:
        _decide(step, event, row)
    return SignalResult.APPLIED


def _note(step: Step, row: JobRow, reason: str, text: str) -> None:
    author = "signal"
    step.ledger.trail.add([TrailRow(0, step.ledger.now, author, reason, "note", row.id, text)])


def _is_for_another_candidate(row: JobRow, event: Signal) -> bool:
    return bool(event.candidate and row.candidate and event.candidate != row.candidate)


def _is_answered(row: JobRow, event: Signal) -> bool:
    answers = event.kind is SignalKind.FINAL and event.decided in _ANSWERS
    return row.accepted and (event.offer or answers)


def _extend(step: Step, event: Signal, row: JobRow) -> None:
    # An accepted job has no deadline, so a late signal cannot extend it.
    if event.extend_ms is not None and not row.accepted:
        row.deadline_at = step.ledger.now + max(1, event.extend_ms)
        row.reconciles = -abs(row.reconciles)
    if event.body is not None:
        row.progress = event.body
    row.in_doubt = False
    step.changed(row)


def _decide(step: Step, event: Signal, row: JobRow) -> None:
    assert row.state in HELD  # noqa: S101  (checked by the caller)
    decided = event.decided
    if decided is Decided.SUCCEEDED:
        reason = event.reason or (row.reason if row.accepted else "")
        step.end(row, State.SUCCEEDED, "succeeded", reason=reason, result=event.body)
    elif decided is Decided.DEAD:
        step.end(row, State.DEAD, "dead", reason=event.reason or "failed", result=event.body)
    elif decided is Decided.ACCEPTED:
        accept(step, row, event.body)
    elif decided is Decided.DECLINED:
        end_turn(step, row, Answer.DECLINED, event.reason)
    else:
        stage = another_stage(step, row, event.stage, event.gates)
        if event.after_ms is None:
            fail(step, row, "failed", event.reason, reason=event.reason or "failed")
        else:
            retry_after(step, row, event.after_ms, event.reason)
        enter(step, row, stage)


def retry_after(step: Step, row: JobRow, after_ms: int, reason: str) -> None:
    """Schedule another attempt after a given delay; if no attempts are left, the job is dead."""
    policy = step.ledger.jobs.policy(row.policy)
    if policy.retry.exhausted(row.attempt):
        step.end(row, State.DEAD, "failed", reason=reason or "failed", error=reason)
        return
    step.ledger.counts.happened("retried")
    row.reason = reason
    step.requeue(
        row, "failed", due_at=step.ledger.now + max(0, after_ms), repeat=False, error=reason
    )
