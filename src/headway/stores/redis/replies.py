"""Decode the replies of the scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from headway.contract.claims import BeatReply, Claimed, ClaimReply
from headway.contract.extensions import Suspicion
from headway.contract.operate import Acted, ActReply
from headway.contract.outcomes import Verdict
from headway.contract.signals import SignalReply, SignalResult
from headway.contract.store import Sent
from headway.core import errors
from headway.core.errors import HeadwayError, InvariantBroken
from headway.core.gates.hours import HoursSpec, intervals
from headway.core.job import JobPolicy, NewJob
from headway.stores.ledger.gate_cache import HORIZON_MS
from headway.stores.redis.values import bytes_of, decode_untyped

Value = TypeVar("Value")

DONE, REFUSED, ASKED, CHANGED, MISMATCH = range(5)
"""The status of a reply; see base/run.lua."""


class ScriptReply(msgspec.Struct, array_like=True):
    """The reply of every script.

    Attributes:
        status: one of the five above.
        value: the verb's own part, encoded.
        now: the store's time of the step, ms.
        wakes: lanes to wake (False: any), each with its time (False: now).
        identity: identity of the store; False until something is written.
        high: the highest time that the store remembers.
        mismatch: whether the store was replaced, or restored to an older state.
    """

    status: int
    value: msgspec.Raw
    now: int
    wakes: list[tuple[str | bool, int | bool]]
    identity: str | bool
    epoch: int
    high: int
    mismatch: bool


class _Need(msgspec.Struct):
    """Hours whose intervals a script cannot compute."""

    name: str
    template: str
    zone: str
    spec: HoursSpec


class _Needs(msgspec.Struct):
    hours: list[_Need]


class _Created(msgspec.Struct):
    created: str
    ids: list[tuple[int, str]]


class _Settled(msgspec.Struct):
    plain: str
    rest: str


class _Beaten(msgspec.Struct):
    lease_until: int
    lost: list[tuple[str, int]]
    cancel: list[tuple[str, int]]


class _SignalResult(msgspec.Struct):
    answer: SignalResult
    job: str | bool | None = None
    state: str | bool | None = None


class _Job(msgspec.Struct, array_like=True):
    """A started job; its flow and policy are numbers of the reply's own lists."""

    id: str
    run: int
    attempt: int
    stage: str
    subject: str | bool
    args: msgspec.Raw
    priority: int
    due_at: int
    flow: int
    policy: int
    gated: bool
    members: dict[str, str] | bool
    candidate: str


class _Claimed(msgspec.Struct):
    jobs: list[_Job]
    flows: list[tuple[int, str, str, str]]
    policies: list[tuple[int, msgspec.Raw]]
    lease_until: int
    again: bool
    after: list[tuple[str, int]]
    next_at: int | None = None
    dead: tuple[str, ...] = ()


decode_reply = msgspec.msgpack.Decoder(ScriptReply).decode
_claimed = msgspec.msgpack.Decoder(_Claimed).decode
_policy = msgspec.msgpack.Decoder(JobPolicy).decode
_settled = msgspec.msgpack.Decoder(_Settled).decode
_created = msgspec.msgpack.Decoder(_Created).decode
_needs = msgspec.msgpack.Decoder(_Needs).decode
_wakes = msgspec.msgpack.Decoder(tuple[str, list[tuple[str | bool, int | bool]]]).decode

_term: Callable[[msgspec.Raw], int | bool] = msgspec.msgpack.Decoder(int | bool).decode

_POLICIES: dict[bytes, JobPolicy] = {}
_MOST_POLICIES = 1_000
_VERDICTS = {
    "d": Verdict.DONE,
    "a": Verdict.ALREADY,
    "l": Verdict.LOST,
    "c": Verdict.CANCELLED,
}


def suspicion(mark: Any) -> Suspicion:  # noqa: ANN401  (decoded, written by any version)
    """Return which process marked the store as replaced or restored, when and why."""
    match mark:
        case [int(at), str(by), str(reason)]:
            return Suspicion(at=at, by=by, reason=reason)
        case _:
            return Suspicion(at=0, by="an older program", reason="it gave no reason")


def read(value: msgspec.Raw, kind: type[Value]) -> Value:
    """Decode a value as any other type."""
    return msgspec.msgpack.decode(value, type=kind)


def untyped(value: msgspec.Raw) -> dict[str, Any]:
    """Decode a read's reply."""
    found = decode_untyped(value)
    # Lua sends an empty table as an array.
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def parse_wakes(data: bytes) -> tuple[str, list[tuple[str | None, int | None]]]:
    """Return the process that published a message, and the lanes that it woke."""
    origin, reply = _wakes(data)
    return origin, woken(reply)


def woken(reply: list[tuple[str | bool, int | bool]]) -> list[tuple[str | None, int | None]]:
    """Return the lanes that a step wakes, each with its time."""
    return [
        (None if isinstance(lane, bool) else lane, None if isinstance(at, bool) else at)
        for lane, at in reply
    ]


def refusal(value: msgspec.Raw) -> HeadwayError:
    """Return the error with which a script refused."""
    name, message, hint = read(value, tuple[str, str, str])
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, HeadwayError):
        return kind(message, hint=hint)
    return InvariantBroken(f"{name}: {message}", hint=hint)


def hours_asked(value: msgspec.Raw, now: int) -> dict[str, Any]:
    """Return the open intervals that a script requests, by gate, up to the horizon."""
    until = now + HORIZON_MS
    return {
        one.name: {"opens": intervals(one.spec, one.zone, now, until), "horizon_at": until}
        for one in _needs(value).hours
    }


def enqueued(value: msgspec.Raw, jobs: Sequence[NewJob]) -> list[Sent]:
    """Return a reply for each job."""
    reply = _created(value)
    others = dict(reply.ids)
    return [
        Sent(others.get(place, job.id), letter == "c")
        for place, (job, letter) in enumerate(zip(jobs, reply.created, strict=True), 1)
    ]


def restored(value: msgspec.Raw) -> list[Sent]:
    """Return a reply for each job in flight."""
    return [Sent(job, created) for job, created in read(value, list[tuple[str, bool]])]


def claim_reply(value: msgspec.Raw, now: int) -> ClaimReply:
    """Return a claim's reply, without `seen`."""
    reply = _claimed(value)
    flows = {number: (lane, tenant, kind) for number, lane, tenant, kind in reply.flows}
    policies = {number: policy_of(data) for number, data in reply.policies}
    jobs: list[Claimed] = []
    for one in reply.jobs:
        lane, tenant, kind = flows[one.flow]
        jobs.append(
            Claimed(
                one.id,
                one.run,
                one.attempt,
                kind,
                one.stage,
                lane,
                tenant,
                _given(one.subject),
                bytes_of(one.args),
                one.priority,
                one.due_at,
                policies[one.policy],
                one.gated,
                {} if isinstance(one.members, bool) else one.members,
                one.candidate,
            )
        )
    return ClaimReply(
        jobs=jobs,
        now=now,
        lease_until=reply.lease_until,
        next_at=reply.next_at,
        again=reply.again,
        after=dict(reply.after),
        dead=reply.dead,
    )


def policy_of(data: msgspec.Raw) -> JobPolicy:
    """Decode a policy; the same bytes give the same object."""
    packed = bytes(data)
    policy = _POLICIES.get(packed)
    if policy is None:
        if len(_POLICIES) >= _MOST_POLICIES:
            _POLICIES.clear()
        policy = _POLICIES[packed] = _policy(packed)
    return policy


def verdicts(value: msgspec.Raw, sent: dict[str, Any], count: int) -> list[Verdict]:
    """Return a verdict for each outcome, in the order of the request."""
    reply = _settled(value)
    if not reply.rest:
        return [_VERDICTS[letter] for letter in reply.plain]
    letters = iter(reply.plain)
    rest = {one["place"]: letter for one, letter in zip(sent["rest"], reply.rest, strict=True)}
    return [_VERDICTS[rest.get(place) or next(letters)] for place in range(count)]


def beat_reply(value: msgspec.Raw, now: int) -> BeatReply:
    """Return a beat's reply."""
    reply = read(value, _Beaten)
    return BeatReply(
        now=now,
        lease_until=reply.lease_until,
        lost=tuple(reply.lost),
        cancel=tuple(reply.cancel),
    )


def signal_reply(value: msgspec.Raw) -> SignalReply:
    """Return a signal's reply."""
    reply = read(value, _SignalResult)
    return SignalReply(answer=reply.answer, job=_given(reply.job), state=_given(reply.state))


def acted(value: msgspec.Raw) -> list[ActReply]:
    """Return the reply for each job of an operator's action."""
    return [
        ActReply(id=job, answer=answer, state=_given(state))
        for job, answer, state in read(value, list[tuple[str, Acted, str | bool]])
    ]


def term(value: msgspec.Raw) -> int | None:
    """Return the term; None if another process leads."""
    reply = _term(value)
    return None if isinstance(reply, bool) else reply


def _given(text: str | bool | None) -> str | None:
    """Return a text, or None for false or a missing value."""
    return text if isinstance(text, str) else None
