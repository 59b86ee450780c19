"""Encode requests for the scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from headway.contract.claims import BeatRequest, ClaimRequest
from headway.contract.definitions import (
    DefineRequest,
    Item,
    NoteUse,
)
from headway.contract.extensions import ExportChunk
from headway.contract.outcomes import (
    Died,
    Failed,
    FoundUnfit,
    Outcome,
    Returned,
    SettleRequest,
    Snoozed,
    Succeeded,
)
from headway.contract.store import InFlight
from headway.core.check import check_jobs
from headway.core.job import DEFAULT_POLICY, MAX_ERROR, MAX_REASON, JobPolicy, NewJob
from headway.core.naming import check_name, check_note
from headway.stores.ledger.lane_claim import BEGAN
from headway.stores.ledger.packing import decode_entry
from headway.stores.ledger.tokenchanges import check_uses
from headway.stores.ledger.verbs.define import check_item
from headway.stores.ledger.verbs.enqueue import check_batch
from headway.stores.ledger.verbs.moving import decode
from headway.stores.ledger.verbs.settle import check_outcomes
from headway.stores.redis.values import (
    named,
    packed_gates,
    packed_policy,
    plain,
    signal_to_script,
    text_of,
)

PackedRequest = dict[str, Any]
_SHORT_ARGS = 256
"""Maximum bytes of arguments stored in the job's own row."""
_decode = msgspec.msgpack.Decoder().decode


class _Batch(NamedTuple):
    """Jobs to be enqueued.

    Attributes:
        request: rows by position; values shared by many jobs are sent once.
        plain: whether a shorter script can insert them all, unless it finds a conflict.
    """

    request: PackedRequest
    plain: bool


def enqueue_request(jobs: Sequence[NewJob]) -> _Batch:
    """Return jobs as rows by position, with shared values sent once.

    Raises:
        CallerError: a job is not valid, or there are too many.
    """
    check_batch("enqueue", len(jobs))
    check_jobs(jobs)
    policies: dict[int, int] = {}
    gates: dict[int, int] = {}
    shapes: dict[tuple[str, str, str, int, int], int] = {}
    packed_policies: list[msgspec.Raw] = []
    packed: list[msgspec.Raw] = []
    rows: list[list[Any]] = []
    plain_ones = True
    for job in jobs:
        # Jobs of a batch share the same objects, so identity is enough.
        policy = policies.get(id(job.policy))
        if policy is None:
            packed_policies.append(packed_policy(job.policy))
            policy = policies[id(job.policy)] = len(packed_policies)
            plain_ones = plain_ones and _ends_plainly(job.policy)
        needs = gates.get(id(job.gates))
        if needs is None:
            packed.append(packed_gates(job.gates))
            needs = gates[id(job.gates)] = len(packed)
            plain_ones = plain_ones and not job.gates
        key = (job.kind, job.lane, job.tenant, needs, policy)
        shape = shapes.get(key)
        if shape is None:
            shape = shapes[key] = len(shapes) + 1
        if _is_bare(job):
            plain_ones = plain_ones and len(job.args) <= _SHORT_ARGS
            rows.append([job.id, shape, text_of(job.args), job.priority, job.due_at])
        else:
            plain_ones = False
            rows.append(_by_position(job, shape))
    request: PackedRequest = {
        "policies": packed_policies,
        "gates": packed,
        "shapes": list(shapes),
        "jobs": rows,
    }
    return _Batch(request, plain_ones)


def _is_bare(job: NewJob) -> bool:
    return (
        job.subject is None
        and job.key is None
        and job.expires_at is None
        and job.entry is None
        and not job.stage
        and not job.candidates
    )


def _ends_plainly(policy: JobPolicy) -> bool:
    return (
        policy.on_final is None and not policy.cascade and policy.keep_ms == DEFAULT_POLICY.keep_ms
    )


def _by_position(job: NewJob, shape: int) -> list[Any]:
    return [
        job.id,
        shape,
        text_of(job.args),
        job.priority,
        job.due_at,
        job.subject,
        job.stage,
        job.key,
        job.expires_at,
        list(job.candidates),
        job.entry,
        job.fired_at,
    ]


def restore_request(jobs: Sequence[InFlight]) -> PackedRequest:
    """Return jobs in flight as maps.

    Raises:
        CallerError: a job is not valid, or there are too many.
    """
    check_batch("restore", len(jobs))
    check_jobs([one.job for one in jobs])
    return {"jobs": [named(one) for one in jobs]}


def claim_request(request: ClaimRequest) -> PackedRequest:
    """Return a claim's request, without the start of its round, which the client keeps."""
    return {
        "worker": request.worker,
        "request": request.request,
        "lanes": request.lanes,
        "order": request.order,
        "n": request.n,
        "free": request.free,
        "lease_ms": request.lease_ms,
        "after": [(lane, at) for lane, at in request.after.items() if lane != BEGAN],
    }


def settle_request(request: SettleRequest) -> PackedRequest:
    """Return plain successes as a flat array of jobs and runs, and the other outcomes as maps.

    Raises:
        CallerError: a follow-up is not valid, or there are too many outcomes.
    """
    outcomes = request.outcomes
    check_batch("settle", len(outcomes))
    check_outcomes(outcomes)
    flat: list[str | int] = []
    rest: list[PackedRequest] = []
    plain = set(request.plain())
    for place, outcome in enumerate(outcomes):
        if place in plain:
            flat += (outcome.job, outcome.run)
        elif type(outcome) is Succeeded and outcome.result and not (outcome.then or outcome.close):
            rest.append(_with_result(outcome, outcome.result, place))
        else:
            rest.append(_outcome(outcome, place))
    return {"worker": request.worker, "plain": flat, "rest": rest}


def _with_result(outcome: Succeeded, result: bytes, place: int) -> PackedRequest:
    """Return the same as `_outcome`, faster, for the most frequent of the other outcomes."""
    fields: PackedRequest = {
        "type": "Succeeded",
        "place": place,
        "job": outcome.job,
        "run": outcome.run,
    }
    fields["result"] = text_of(result)
    return fields


def _outcome(outcome: Outcome, place: int) -> PackedRequest:
    check_jobs(outcome.then)
    fields = named(outcome)
    fields.update(type=type(outcome).__name__, place=place)
    for name in ("then", "close"):
        if not fields[name]:
            del fields[name]
    if isinstance(outcome, Failed | Died | Returned):
        fields["error"] = _text(outcome.error, MAX_ERROR)
    if isinstance(outcome, Failed):
        # Cut here, because Lua counts bytes and would split a character.
        fields["line"] = _text(outcome.line, MAX_REASON)
    if isinstance(outcome, Died | Snoozed | FoundUnfit):
        fields["reason"] = _text(outcome.reason, MAX_REASON)
    return fields


def _text(text: str, most: int) -> str:
    # A handler's error may contain lone surrogates, which cannot be encoded.
    return text[:most].encode("utf-8", "replace").decode()


def beat_request(request: BeatRequest) -> PackedRequest:
    """Return a beat's request."""
    return {
        "worker": request.worker,
        "running": request.running,
        "request": request.request,
        "lease_ms": request.lease_ms,
        "lanes": request.lanes,
        "name": request.name,
        "progress": [(job, run, text_of(data)) for job, run, data in request.progress],
        "leaving": request.leaving,
    }


def define_request(request: DefineRequest) -> PackedRequest:
    """Return definitions, each with the name of its class."""
    check_name("author", request.author)
    check_note("reason", request.reason)
    return {
        "author": request.author,
        "reason": request.reason,
        "items": [_item(item) for item in request.items],
        **({} if request.revision is None else {"revision": request.revision}),
    }


def _item(item: Item) -> PackedRequest:
    fields = {"type": type(item).__name__, **named(item)}
    # The summary for the trail is the same in every store.
    if summary := check_item(item):
        fields["said"] = summary
    if isinstance(item, NoteUse):
        fields["used"] = list(check_uses(item).items())
    return fields


def import_chunk_request(chunk: ExportChunk) -> PackedRequest:
    """Return a chunk's rows with named fields."""
    found = decode(chunk)  # refuses a chunk of another version
    rows: list[PackedRequest] = _decode(chunk.rows)
    if chunk.part == "gates":
        for row, one in zip(rows, found, strict=True):
            if kept := one.row.reserved:
                row["row"]["reserved"] = {**kept._asdict(), "order": kept.order._asdict()}
    if chunk.part == "entries":
        rows = [{**row, "spec": _entry(row["spec"])} for row in rows]
    if chunk.part == "events":
        rows = [{**row, "payload": signal_to_script(row["payload"])} for row in rows]
    return {"part": chunk.part, "rows": [plain(row) for row in rows]}


def _entry(spec: bytes | None) -> PackedRequest | None:
    # As `define` sends it: Lua stores an entry as a map.
    found = decode_entry(spec)
    return None if found is None else named(found)
