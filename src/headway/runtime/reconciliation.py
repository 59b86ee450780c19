"""Reconciliation: querying a provider about a job that awaits too long, and applying the answer."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from headway.contract.signals import Decided, Signal, SignalKind
from headway.contract.store import Store
from headway.contract.views import JobQuery, JobView
from headway.core.errors import InvalidValue
from headway.core.gates.spec import GateUse
from headway.core.state import State
from headway.runtime.handler_results import Ended, Running, Unknown
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.records import encode, text_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True, slots=True)
class Awaited:
    """An awaiting job whose end was not reported.

    Attributes:
        id: id of the job.
        run: number of the run that handed over.
        ref: `id:run`, the key by which signals find it unless its handler passed another.
        kind: kind of the job.
        lane: lane of the job.
        tenant: tenant of the job.
        subject: subject of the job.
        args: its arguments, as decoded from JSON.
        permits: the member that it holds in each pool, by the name of the pool.
        candidate: in a cascade, the candidate whose turn it is; otherwise empty.
        handed_at: when it handed over, in UTC.
        in_doubt: whether its worker died before its handler returned.
    """

    id: str
    run: int
    ref: str
    kind: str
    lane: str
    tenant: str
    subject: str | None
    args: Mapping[str, Any]
    permits: Mapping[str, str]
    candidate: str
    handed_at: datetime | None
    in_doubt: bool


class _Facts(msgspec.Struct):
    """The arguments of a reconcile job."""

    job: str
    run: int


_facts = msgspec.json.Decoder(_Facts)
_args = msgspec.json.Decoder(dict[str, Any])


async def reconcile(
    job: Job, store: Store, ask: Callable[[Awaited], Any], kinds: Mapping[str, Kind]
) -> None:
    """Call the reconcile handler for an awaiting job, and signal its answer to the store.

    Nothing is done if the job's run no longer awaits, its offer has been accepted, or it belongs to
    another lane or tenant than the reconcile job.

    Args:
        job: the reconcile job, not the awaiting one.
        ask: the reconcile handler.
        kinds: kinds of the app by name, to resolve the gates of the next attempt's stage.

    Raises:
        InvalidValue: the handler returned none of the possible answers, or an unknown stage.
    """
    facts = _facts.decode(job.claimed.args)
    view = await store.read(JobQuery(id=facts.job))
    if view is None or view.state is not State.AWAITING or view.run != facts.run:
        return
    if (view.lane, view.tenant) != (job.lane, job.tenant):
        # Sent by a caller, not created for this job: callers of other scopes can name any job.
        return
    if view.cascade is not None and view.cascade.accepted:
        return
    awaited = _awaited(view)
    if inspect.iscoroutinefunction(ask):
        answer = await ask(awaited)
    else:
        answer = await asyncio.to_thread(ask, awaited)
    # The event id is the reconcile job's, so that a repeated run of it applies its answer once.
    event = f"reconcile:{job.id}"
    match answer:
        case Running(extend_ms=extend_ms, known_as=known_as):
            await store.signal(
                Signal(
                    key=awaited.ref,
                    event=event,
                    kind=SignalKind.PROGRESS,
                    extend_ms=extend_ms,
                    known_as=known_as,
                    offer=view.cascade is not None,
                )
            )
        case Ended():
            await store.signal(_ended(answer, view, event, kinds))
        case Unknown():
            return
        case _:
            message = f"the reconcile handler of {awaited.kind!r} returned {answer!r:.80}"
            raise InvalidValue(message, hint="return Running, Ended or Unknown")


def _ended(answer: Ended, view: JobView, event: str, kinds: Mapping[str, Kind]) -> Signal:
    gates: tuple[GateUse, ...] = ()
    if answer.stage:
        kind = kinds[view.kind]
        gates = kind.uses(answer.stage, view.lane, view.tenant, view.args, answer.gates)
    return Signal(
        key=f"{view.id}:{view.run}",
        event=event,
        decided=Decided(answer.final),
        body=None if answer.body is None else encode("body", answer.body),
        reason=text_of(answer.reason),
        after_ms=answer.after_ms,
        stage=answer.stage,
        gates=gates,
        known_as=answer.known_as,
        # So that it does not overrule a candidate who accepts while the provider is queried.
        offer=view.cascade is not None,
    )


def _awaited(view: JobView) -> Awaited:
    run = next((one for one in view.runs if one.run == view.run), None)
    handed_at = run.handed_at if run else None
    return Awaited(
        id=view.id,
        run=view.run,
        ref=f"{view.id}:{view.run}",
        kind=view.kind,
        lane=view.lane,
        tenant=view.tenant,
        subject=view.subject,
        args=_args.decode(view.args),
        permits={gate: member for gate, member in run.permits.items() if member} if run else {},
        candidate=run.candidate if run else "",
        handed_at=None if handed_at is None else _EPOCH + timedelta(milliseconds=handed_at),
        in_doubt=view.in_doubt,
    )
