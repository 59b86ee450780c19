"""Act: an operator's actions on jobs, each recorded on the trail; and the release of a permit."""

from __future__ import annotations

from collections.abc import Callable

from headway.contract.operate import Acted, ActReply, ActRequest, Edit, Verb
from headway.core.check import LATEST, check_candidates, check_gates
from headway.core.errors import InvalidValue, PayloadTooLarge
from headway.core.job import MAX_ARGS, MAX_PRIORITY, body_hash
from headway.core.naming import check_name, check_note, check_text
from headway.core.state import FINAL, HELD, QUEUED, State
from headway.stores.ledger.attempts import Stage, enter, stage_of
from headway.stores.ledger.feeding import feed_gate
from headway.stores.ledger.insert import check_turns
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.packing import decode_replies, encode_json
from headway.stores.ledger.rows import JobRow, TrailRow
from headway.stores.ledger.step import Step, keep_key, run_error
from headway.stores.ledger.verbs.enqueue import check_batch


def act(ledger: Ledger, request: ActRequest) -> list[ActReply]:
    """See `Store.act`."""
    check_act(request)
    before = ledger.trail.answer(request.request)
    if before is not None:
        return decode_replies(before)
    step = Step(ledger)
    step.load(request.ids)
    replies = [_apply_to(step, request, job) for job in request.ids]
    step.flush()
    done = [reply for reply in replies if reply.answer in {Acted.DONE, Acted.ASKED}]
    shared = (ledger.now, request.author, request.reason, str(request.verb))
    ledger.trail.add([TrailRow(0, *shared, reply.id, str(reply.answer)) for reply in done])
    ledger.trail.keep_answer(request.request, encode_json(replies))
    return replies


def check_act(request: ActRequest) -> None:
    """Validate an operator's action.

    Raises:
        InvalidValue: there are too many ids, an id, the author, the request's id or the reason is
            not a text that every store can hold, or the edit is invalid.
        PayloadTooLarge: the arguments are above the limit.
    """
    check_batch("act", len(request.ids))
    for job in request.ids:
        # With NUL it is only unknown, like any other id that no job has.
        check_text("the job's id", job.replace("\0", ""))
    check_name("author", request.author)
    check_name("request", request.request)
    check_note("reason", request.reason)
    check_edit(request.edit)


def check_edit(edit: Edit) -> None:
    """Validate an edit.

    Raises:
        InvalidValue: the priority or due time is out of range, or the stage, gates or candidates
            are invalid.
        PayloadTooLarge: the arguments are above the limit.
    """
    if edit.priority is not None and not 0 <= edit.priority <= MAX_PRIORITY:
        message = f"priority is {edit.priority}"
        raise InvalidValue(message, hint=f"it must be from 0 (first) to {MAX_PRIORITY}")
    if edit.due_at is not None and not 0 <= edit.due_at <= LATEST:
        message = f"due is {edit.due_at} ms"
        raise InvalidValue(message, hint="a time from 1970 to 9999")
    if edit.args is not None and len(edit.args) > MAX_ARGS:
        message = f"the arguments have {len(edit.args)} bytes"
        raise PayloadTooLarge(message, hint=f"at most {MAX_ARGS}")
    if edit.stage:
        check_name("stage", edit.stage)
    if edit.gates is not None:
        check_gates("any", edit.gates)
    if edit.candidates is not None:
        check_candidates("the edit", edit.candidates)


def _apply_to(step: Step, request: ActRequest, job: str) -> ActReply:
    row = step.row(job)
    if row is None:
        return ActReply(id=job, answer=Acted.UNKNOWN, state=None)
    if request.states and row.state not in request.states:
        return ActReply(id=job, answer=Acted.REFUSED, state=row.state)
    answer = _VERBS[request.verb](step, row, request)
    return ActReply(id=job, answer=answer, state=row.state)


def _cancel(step: Step, row: JobRow, request: ActRequest) -> Acted:
    if row.state in FINAL:
        return Acted.REFUSED
    if row.state in QUEUED:
        step.end(row, State.CANCELLED, "", reason=request.reason or "cancelled")
        return Acted.DONE
    row.cancel_requested, row.care = True, True
    step.changed(row)
    return Acted.ASKED


def _retry(step: Step, row: JobRow, request: ActRequest) -> Acted:
    was_stopped = row.state is State.DEAD or row.state is State.CANCELLED
    if not was_stopped or not _can_be_edited(row, request.edit):
        return Acted.REFUSED
    stage = _stage_after(step, row, request.edit)
    step.keep_run(row, row.outcome, run_error(row))
    now = step.ledger.now
    row.life += 1
    row.attempt = 0
    row.finished_at, row.purge_at, row.expires_at = None, None, None
    row.reason, row.error, row.result = "", "", None
    row.due_at = now
    row.blocked_ms = 0
    if row.cascade is not None:
        row.cascade = row.cascade.reset()
    _edit_fields(row, request.edit)
    step.move(row, State.SCHEDULED if row.due_at > now else State.WAITING)
    enter(step, row, stage)
    if row.key is not None:
        keep_key(step.ledger, row, None)
    step.wake(row.lane, row.due_at)
    _exhaust(step, row)
    return Acted.DONE


def _run_now(step: Step, row: JobRow, _request: ActRequest) -> Acted:
    if row.state not in QUEUED:
        return Acted.REFUSED
    if row.state is State.SCHEDULED:
        # A job that is due but not promoted yet keeps its place.
        row.due_at = min(row.due_at, step.ledger.now)
        step.move(row, State.WAITING)
    step.wake(row.lane)
    return Acted.DONE


def _edit(step: Step, row: JobRow, request: ActRequest) -> Acted:
    if row.state not in QUEUED or not _can_be_edited(row, request.edit):
        return Acted.REFUSED
    stage = _stage_after(step, row, request.edit)
    # Overlap of a timetable's fire is decided at its promotion, even if it is already due.
    stays = row.entry is not None and row.state is State.SCHEDULED and request.edit.due_at is None
    _edit_fields(row, request.edit)
    # Its place changes: it goes back to its flow, even if it was parked.
    later = stays or row.due_at > step.ledger.now
    step.move(row, State.SCHEDULED if later else State.WAITING)
    enter(step, row, stage)
    step.wake(row.lane, row.due_at)
    _exhaust(step, row)
    return Acted.DONE


def _can_be_edited(row: JobRow, edit: Edit) -> bool:
    return (
        (edit.candidates is None or row.cascade is not None)
        and (edit.if_run is None or edit.if_run == row.run)
        and (edit.if_args is None or edit.if_args == row.args)
    )


def _stage_after(step: Step, row: JobRow, edit: Edit) -> Stage | None:
    """Return the stage to which the edit moves the job; None if it stays."""
    name = row.stage if edit.stage is None else edit.stage
    if edit.gates is not None:
        return stage_of(step, row, name, edit.gates, edit.candidates)
    if edit.candidates is not None:
        check_turns(step.cache, row.kind, row.keyed, edit.candidates)
    return None if name == row.stage else Stage(name, row.flow, row.keyed)


def _exhaust(step: Step, row: JobRow) -> None:
    """End a cascade that has no candidates left, as its creation would."""
    if row.cascade is not None and row.cascade.exhausted:
        step.end(row, State.DEAD, "", reason="exhausted")


def _edit_fields(row: JobRow, edit: Edit) -> None:
    if edit.priority is not None:
        row.priority = edit.priority
    if edit.due_at is not None:
        if row.expires_at is not None:
            # It says how long after its due time the job may still start.
            row.expires_at = max(0, min(row.expires_at + edit.due_at - row.due_at, LATEST))
        row.due_at = edit.due_at
    if edit.args is not None:
        if not row.body:
            row.body = body_hash(row.kind, row.lane, row.tenant, row.subject, row.args)
        row.args = edit.args
    if edit.candidates is not None and row.cascade is not None:
        row.cascade = row.cascade.replace_left(edit.candidates)


def _force(step: Step, row: JobRow, request: ActRequest) -> Acted:
    if row.state in FINAL:
        return Acted.REFUSED
    if row.state in HELD:
        # The operator's decision replaces a requested cancel.
        row.cancel_requested = False
        row.worker, row.last_worker = None, row.worker or row.last_worker
    state = State.SUCCEEDED if request.verb is Verb.SUCCEED else State.DEAD
    step.end(row, state, "forced", reason=request.reason or f"{state} by {request.author}")
    return Acted.DONE


_VERBS: dict[Verb, Callable[[Step, JobRow, ActRequest], Acted]] = {
    Verb.CANCEL: _cancel,
    Verb.RETRY: _retry,
    Verb.RUN_NOW: _run_now,
    Verb.EDIT: _edit,
    Verb.SUCCEED: _force,
    Verb.KILL: _force,
}


def check_release(gate: str, job: str, author: str, reason: str, request: str) -> None:
    """Validate the release of a permit.

    Raises:
        InvalidValue: a value is not a text that every store can hold.
    """
    check_name("gate", gate)
    check_text("the job's id", job)
    check_name("author", author)
    check_note("reason", reason)
    check_text("request", request)


def release_permit(
    ledger: Ledger, gate: str, job: str, author: str, reason: str, request: str
) -> bool:
    """See `Store.release_permit`."""
    check_release(gate, job, author, reason, request)
    if request and ledger.trail.answer(request) is not None:
        return True
    permits = [one for one in ledger.permits.of_jobs([job]) if gate in {one.gate, one.pool}]
    if not permits:
        return False
    step = Step(ledger)
    freed = step.return_permits(permits)
    for name in freed:
        feed_gate(step.cache, name)
    step.flush()
    ledger.trail.add([TrailRow(0, ledger.now, author, reason, "release_permit", gate, job)])
    if request:
        ledger.trail.keep_answer(request, b"released")
    return True
