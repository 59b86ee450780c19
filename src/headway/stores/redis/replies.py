"""Replies as the scripts pack them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from headway.contract.claims import BeatReply, Claimed, ClaimReply
from headway.contract.definitions import FireReply
from headway.contract.enqueue import Enqueued
from headway.contract.mending import Suspicion
from headway.contract.operate import Acted, ActReply
from headway.contract.outcomes import Verdict
from headway.contract.signals import Heard, SignalReply
from headway.contract.sweeps import SweepReply
from headway.core import errors
from headway.core.errors import HeadwayError, InvariantBroken
from headway.core.gates.hours import HoursSpec, intervals
from headway.core.job import JobPolicy, NewJob
from headway.stores.ledger.horizon import HORIZON_MS
from headway.stores.redis.untyped import decode_untyped
from headway.stores.redis.values import bytes_of

Value = TypeVar("Value")

DONE, REFUSED, ASKED, CHANGED, DOUBTED = range(5)
"""What the first number of a reply says; see base/run.lua."""


class Told(msgspec.Struct, array_like=True):
    """What every script replies.

    Attributes:
        status: one of the five above.
        value: the verb's own; not decoded yet.
        now: the store's time of the step, ms.
        wakes: lanes to be woken (False: any), each with from when (False: now).
        identity: of the store; False while nothing was written yet.
        epoch: of the store.
        high: the highest time that the store remembers.
        doubted: the store is not the one, or no later state of the one, that was seen.
    """

    status: int
    value: msgspec.Raw
    now: int
    wakes: list[tuple[str | bool, int | bool]]
    identity: str | bool
    epoch: int
    high: int
    doubted: bool


class _Need(msgspec.Struct):
    """Hours that a script cannot work out."""

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


class _Heard(msgspec.Struct):
    answer: Heard
    job: str | bool | None = None
    state: str | bool | None = None


class _Fired(msgspec.Struct):
    fired: list[int]
    current: bool


_Job = tuple[
    str,
    int,
    int,
    str,
    str | bool,
    msgspec.Raw,
    int,
    int,
    int,
    int,
    bool,
    dict[str, str] | bool,
    str,
]


class _Claimed(msgspec.Struct):
    jobs: list[_Job]
    flows: list[tuple[int, str, str, str]]
    policies: list[tuple[int, msgspec.Raw]]
    lease_until: int
    again: bool
    after: list[tuple[str, int]]
    next_at: int | None = None
    dead: tuple[str, ...] = ()


told_of = msgspec.msgpack.Decoder(Told).decode
_claimed = msgspec.msgpack.Decoder(_Claimed).decode
_policy = msgspec.msgpack.Decoder(JobPolicy).decode
_settled = msgspec.msgpack.Decoder(_Settled).decode
_created = msgspec.msgpack.Decoder(_Created).decode
_needs = msgspec.msgpack.Decoder(_Needs).decode
_news = msgspec.msgpack.Decoder(tuple[str, list[tuple[str | bool, int | bool]]]).decode

_term: Callable[[msgspec.Raw], int | bool] = msgspec.msgpack.Decoder(int | bool).decode

_POLICIES: dict[bytes, JobPolicy] = {}
_MOST_POLICIES = 1_000
_VERDICTS = {
    "d": Verdict.DONE,
    "a": Verdict.ALREADY,
    "l": Verdict.LOST,
    "c": Verdict.CANCELLED,
}


def suspicion(mark: Any) -> Suspicion:  # noqa: ANN401  (decoded, of any version of this program)
    """Who marked the store as another or an older one, when and why."""
    match mark:
        case [int(at), str(by), str(reason)]:
            return Suspicion(at=at, by=by, reason=reason)
        case _:
            return Suspicion(at=0, by="an older program", reason="it did not say why")


def read(value: msgspec.Raw, kind: type[Value]) -> Value:
    """A reply of any other type."""
    return msgspec.msgpack.decode(value, type=kind)


def untyped(value: msgspec.Raw) -> dict[str, Any]:
    """A read's reply: whatever it looked at."""
    found = decode_untyped(value)
    # A table without anything in it is told as an array.
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def news_of(data: bytes) -> tuple[str, list[tuple[str | None, int | None]]]:
    """A message about wakes: which process tells it, and whom it woke."""
    origin, told = _news(data)
    return origin, woken(told)


def woken(told: list[tuple[str | bool, int | bool]]) -> list[tuple[str | None, int | None]]:
    """Whom a step wakes."""
    return [
        (None if isinstance(lane, bool) else lane, None if isinstance(at, bool) else at)
        for lane, at in told
    ]


def refusal(value: msgspec.Raw) -> HeadwayError:
    """The error with which a script refused."""
    name, message, hint = read(value, tuple[str, str, str])
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, HeadwayError):
        return kind(message, hint=hint)
    return InvariantBroken(f"{name}: {message}", hint=hint)


def hours_asked(value: msgspec.Raw, now: int) -> dict[str, Any]:
    """The open intervals that a script asks for, by gate, up to the horizon."""
    until = now + HORIZON_MS
    return {
        one.name: {"opens": intervals(one.spec, one.zone, now, until), "horizon_at": until}
        for one in _needs(value).hours
    }


def enqueued(value: msgspec.Raw, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """A reply for each job."""
    told = _created(value)
    others = dict(told.ids)
    return [
        Enqueued(others.get(place, job.id), letter == "c")
        for place, (job, letter) in enumerate(zip(jobs, told.created, strict=True), 1)
    ]


def restored(value: msgspec.Raw) -> list[Enqueued]:
    """A reply for each job in flight."""
    return [Enqueued(job, created) for job, created in read(value, list[tuple[str, bool]])]


def claim_reply(value: msgspec.Raw, now: int) -> ClaimReply:
    """What a claim hands out; `seen` is not told yet."""
    told = _claimed(value)
    flows = {number: (lane, tenant, kind) for number, lane, tenant, kind in told.flows}
    policies = {number: policy_of(data) for number, data in told.policies}
    jobs: list[Claimed] = []
    for (
        job,
        run,
        attempt,
        stage,
        subject,
        args,
        priority,
        due_at,
        flow,
        policy,
        gated,
        members,
        candidate,
    ) in told.jobs:
        lane, tenant, kind = flows[flow]
        jobs.append(
            Claimed(
                job,
                run,
                attempt,
                kind,
                stage,
                lane,
                tenant,
                _given(subject),
                bytes_of(args),
                priority,
                due_at,
                policies[policy],
                gated,
                {} if isinstance(members, bool) else members,
                candidate,
            )
        )
    return ClaimReply(
        jobs=jobs,
        now=now,
        lease_until=told.lease_until,
        next_at=told.next_at,
        again=told.again,
        after=dict(told.after),
        dead=told.dead,
    )


def policy_of(data: msgspec.Raw) -> JobPolicy:
    """A policy; the same one for the same bytes."""
    packed = bytes(data)
    policy = _POLICIES.get(packed)
    if policy is None:
        if len(_POLICIES) >= _MOST_POLICIES:
            _POLICIES.clear()
        policy = _POLICIES[packed] = _policy(packed)
    return policy


def verdicts(value: msgspec.Raw, sent: dict[str, Any], count: int) -> list[Verdict]:
    """A verdict for each outcome, in the order of the request.

    Args:
        value: of the reply.
        sent: the request.
        count: of its outcomes.
    """
    told = _settled(value)
    if not told.rest:
        return [_VERDICTS[letter] for letter in told.plain]
    letters = iter(told.plain)
    rest = {one["place"]: letter for one, letter in zip(sent["rest"], told.rest, strict=True)}
    return [_VERDICTS[rest.get(place) or next(letters)] for place in range(count)]


def beat_reply(value: msgspec.Raw, now: int) -> BeatReply:
    """What the worker must know."""
    told = read(value, _Beaten)
    return BeatReply(
        now=now,
        lease_until=told.lease_until,
        lost=tuple(told.lost),
        cancel=tuple(told.cancel),
    )


def signal_reply(value: msgspec.Raw) -> SignalReply:
    """What became of a signal."""
    told = read(value, _Heard)
    return SignalReply(answer=told.answer, job=_given(told.job), state=_given(told.state))


def acted(value: msgspec.Raw) -> list[ActReply]:
    """What became of a move on each job."""
    return [
        ActReply(id=job, answer=answer, state=_given(state))
        for job, answer, state in read(value, list[tuple[str, Acted, str | bool]])
    ]


def fire_reply(value: msgspec.Raw) -> FireReply:
    """The moments that were laid."""
    told = read(value, _Fired)
    return FireReply(fired=tuple(told.fired), current=told.current)


def term(value: msgspec.Raw) -> int | None:
    """The term of whoever leads now; None for somebody else."""
    told = _term(value)
    return None if isinstance(told, bool) else told


def _given(text: str | bool | None) -> str | None:
    """A text that may not be there: Lua says so by false."""
    return text if isinstance(text, str) else None


def sweep_reply(value: msgspec.Raw) -> SweepReply:
    """What a sweep did."""
    return read(value, SweepReply)
