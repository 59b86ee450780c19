"""Creating jobs from requests, with their gates, and storing them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec
from uuid_utils import uuid7

from headway.contract.store import Sent
from headway.core.errors import (
    HeadwayError,
    IdConflict,
    InvalidArguments,
    InvalidValue,
    KeyConflict,
    PayloadTooLarge,
)
from headway.core.gates.spec import GateSpec, GateUse
from headway.core.instant import format_instant
from headway.core.job import (
    DEFAULT_POLICY,
    DEFAULT_PRIORITY,
    MAX_ARGS,
    MAX_BATCH,
    FollowUp,
    JobPolicy,
    NewJob,
    derived_id,
)
from headway.core.local_time import find_zone
from headway.core.naming import placeholders, resolve
from headway.core.retry import Backoff, RetryPolicy
from headway.core.state import State
from headway.runtime.handler import RESERVED
from headway.runtime.kind import Kind
from headway.server.bodies.jobs import (
    POLICY_FIELDS,
    AcceptedBody,
    FollowUpBody,
    GateBody,
    JobBody,
    OptionsBody,
    RetryBody,
)
from headway.server.caller import OPEN_CALLER, Caller, Permission
from headway.server.finding import jobs_by_id
from headway.server.paging import check_repeat_key
from headway.server.problems import add_members
from headway.server.service import A_TURN_BYTES, DeclaredGates, Service
from headway.server.visibility import hide_conflict

_CANDIDATE = frozenset({"candidate"})
_NONE = frozenset[str]()
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")

_Gates = Sequence[str | GateBody]


async def known_gates(declared: DeclaredGates, gates: _Gates) -> Mapping[str, GateSpec]:
    """Check that gates are declared, and return all declared gates by name."""
    return await declared.find(one if isinstance(one, str) else one.gate for one in gates)


def gate_uses(
    gates: _Gates, known: Mapping[str, GateSpec], values: Mapping[str, object], *, cascade: bool
) -> tuple[GateUse, ...]:
    """Return the gates of a job with their names resolved, in the order of the request.

    Args:
        known: from `known_gates`.
        values: the job's arguments, plus `tenant`, `lane` and `kind`.
        cascade: whether to keep `{candidate}`, which each turn fills in.

    Raises:
        InvalidValue: a name cannot be resolved or does not match its template, or a zone is
            invalid.
    """
    keep = _CANDIDATE if cascade else _NONE
    return tuple(
        _use(GateBody(gate=one) if isinstance(one, str) else one, known, values, keep)
        for one in gates
    )


def _use(
    body: GateBody,
    known: Mapping[str, GateSpec],
    values: Mapping[str, object],
    keep: frozenset[str],
) -> GateUse:
    spec = known[body.gate]
    if body.name is None:
        name = resolve(spec.name, values, keep=keep)
    elif _name_pattern(spec.name).fullmatch(body.name):
        name = body.name
    else:
        message = f"the name {body.name[:80]!r} does not match the gate {spec.name!r}"
        raise InvalidValue(message, hint="fill in its placeholders, or omit the name")
    return GateUse(
        name=name,
        template=spec.name,
        amount=body.amount,
        hold=body.hold,
        shared=spec.shared,
        zone=_zone(body, spec, values),
    )


def _zone(body: GateBody, spec: GateSpec, values: Mapping[str, object]) -> str | None:
    if spec.hours is None:
        if body.zone is not None:
            message = f"the gate {spec.name!r} is a {spec.kind} and has no zone"
            raise InvalidValue(message, hint="omit the zone")
        return None
    if body.zone is None or not placeholders(spec.hours.tz):
        zone = resolve(spec.hours.tz, values)
    else:
        zone = body.zone
    if body.zone not in {None, zone}:
        message = f"the hours {spec.name!r} are in the zone {zone}"
        raise InvalidValue(message, hint="omit the zone")
    find_zone(zone)
    return zone


@lru_cache(maxsize=1024)
def _name_pattern(template: str) -> re.Pattern[str]:
    return re.compile(".+".join(map(re.escape, _PLACEHOLDER.split(template))), re.DOTALL)


_encode = msgspec.json.Encoder().encode


async def make_job(service: Service, caller: Caller, body: JobBody) -> NewJob:
    """Create a job; see `make_jobs`."""
    return (await make_jobs(service, caller, [body]))[0]


async def make_jobs(
    service: Service, caller: Caller, bodies: Sequence[JobBody], *, repeat_key: str | None = None
) -> list[NewJob]:
    """Create the jobs of a request, in its order; nothing is stored yet.

    Jobs of a kind of the server's App are created by the kind, with its gates and policy.

    Args:
        repeat_key: the Idempotency-Key of the request: the same key yields the same ids.

    Raises:
        Forbidden: the caller may not send, or a tenant or lane is outside its scope.
        InvalidArguments: the arguments do not match the kind's handler.
        InvalidValue: a value is invalid, or a gate's name cannot be resolved.
        PayloadTooLarge: arguments are above the limit.
        UnknownGate: a gate is not declared.
    """
    caller.check(Permission.SEND)
    if repeat_key is not None:
        check_repeat_key(repeat_key)
    gates = await known_gates(service.gates, [one for body in bodies for one in body.gates or ()])
    maker = _JobFactory(service, caller, await _now(service, bodies), gates)
    ids = (
        body.id or (str(uuid7()) if repeat_key is None else _repeated_id(caller, repeat_key, n))
        for n, body in enumerate(bodies)
    )
    jobs: list[NewJob] = []
    size = 0
    async for body, id in service.in_turns(zip(bodies, ids, strict=True)):
        jobs.append(maker.job(body, id))
        size += len(jobs[-1].args)
        if size > A_TURN_BYTES:
            size = 0
            await service.timing.pause(0)
    return jobs


def _repeated_id(caller: Caller, repeat_key: str, n: int) -> str:
    return derived_id("http", caller.id, repeat_key, n)


async def check_repeated_list(
    service: Service, caller: Caller, bodies: Sequence[JobBody], repeat_key: str
) -> None:
    """Refuse a list that is shorter or longer than the one sent before under its key.

    It is shorter if a job follows its last one, and longer if a batch, which is stored completely
    or not at all, is there in part.

    Raises:
        IdConflict: the key was used for another list; nothing was written.
    """
    # An id of its own is not derived, and a key may have led to another job.
    batches: dict[int, list[int]] = {}
    for n, body in enumerate(bodies):
        if body.id is None and body.key is None:
            batches.setdefault(n // MAX_BATCH, []).append(n)
    numbers = {len(bodies), *(n for one in batches.values() for n in (one[0], one[-1]))}
    ids = {n: _repeated_id(caller, repeat_key, n) for n in numbers}
    found = {job.id async for job in jobs_by_id(service.store, ids.values())}
    if ids[len(bodies)] in found or any(
        ids[one[0]] in found and ids[one[-1]] not in found for one in batches.values()
    ):
        message = "the Idempotency-Key was used for a list with another number of jobs"
        raise IdConflict(message, hint="repeat the first list, or use a new key for another")


async def _now(service: Service, bodies: Sequence[JobBody]) -> int:
    """Return the store's time if a delay requires it, otherwise 0."""
    kinds = {} if service.app is None else service.app.kinds
    counts = (
        _expires(one, kinds.get(one.kind)) or (one.due is not None and one.due.at is None)
        for one in bodies
    )
    return await service.now() if any(counts) else 0


def _expires(body: JobBody, kind: Kind | None) -> bool:
    return body.expires is not None or (kind is not None and kind.options.expires_ms is not None)


class _JobFactory:
    """Creates the jobs of a request."""

    def __init__(
        self, service: Service, caller: Caller, now: int, gates: Mapping[str, GateSpec]
    ) -> None:
        self._kinds = {} if service.app is None else service.app.kinds
        self._caller = caller
        self._now = now
        self._gates = gates

    def job(self, body: JobBody, id: str) -> NewJob:
        due_at = None if body.due is None else body.due.resolved(self._now)
        kind = self._kinds.get(body.kind)
        job = (
            self._plain(body, id, due_at) if kind is None else self._of_kind(kind, body, id, due_at)
        )
        self._caller.check_tenant(job.tenant)
        self._caller.check_lane(job.lane)
        if kind is None:
            self._check_lanes(body, body.on_accepted)
        return job

    def _check_lanes(self, body: OptionsBody, accepted: AcceptedBody | None = None) -> None:
        # Not those of kinds, which the App declares.
        for follow in filter(None, (body.on_final, accepted)):
            if follow.lane is not None:
                self._caller.check_lane(follow.lane)
            if follow.policy is not None:
                self._check_lanes(follow.policy)

    def _of_kind(self, kind: Kind, body: JobBody, id: str, due_at: int | None) -> NewJob:
        taken = RESERVED.intersection(body.args)
        if taken:
            message = f"{kind.name}: {min(taken)!r} cannot be an argument"
            raise InvalidArguments(message, hint="put fields of the job next to `args`")
        tenant = body.tenant
        if tenant is None and not kind.options.tenant:
            tenant = self._caller.tenant(None)
        # Without a due time the kind would count the expiry from this machine's clock.
        from_at = self._now if due_at is None and _expires(body, kind) else due_at
        chosen: dict[str, Any] = {
            "due": None if from_at is None else format_instant(from_at),
            "priority": body.priority,
            "lane": body.lane,
            "tenant": tenant,
            "subject": body.subject,
            "key": body.key,
            "expires": None if body.expires is None else f"{body.expires}ms",
            "job_id": id,
            "candidates": body.candidates,
        }
        job = kind.make(**chosen, **body.args)
        if from_at != due_at:
            job = job.changed(due_at=due_at)
        own = next((name for name in POLICY_FIELDS if getattr(body, name) is not None), None)
        if own is not None and not _are_equal(job, self._plain(body, id, due_at)):
            message = f"{kind.name}: {own!r} is defined by the kind itself"
            raise InvalidValue(message, hint="omit it; the server's App declares this kind")
        return job

    def _plain(self, body: JobBody, id: str, due_at: int | None) -> NewJob:
        args = _encode(body.args) if body.args else b"{}"
        if len(args) > MAX_ARGS:
            message = f"{body.kind}: the arguments have {len(args)} bytes"
            raise PayloadTooLarge(
                message, hint=f"at most {MAX_ARGS}; store them, and send a reference"
            )
        cascade = body.candidates is not None
        if body.cascade is not None and body.cascade != cascade:
            message = f"{body.kind}: a cascade needs candidates, and only a cascade may have any"
            raise InvalidValue(message, hint="pass candidates, in the order in which to ask them")
        if body.on_accepted is not None and not cascade:
            message = f"{body.kind}: on_accepted requires a cascade"
            raise InvalidValue(message, hint="pass candidates, or omit it")
        lane = "main" if body.lane is None else body.lane
        tenant = self._caller.tenant(body.tenant) or ""
        expires_at = None
        if body.expires is not None:
            expires_at = (self._now if due_at is None else due_at) + body.expires
        return NewJob(
            id=id,
            kind=body.kind,
            lane=lane,
            tenant=tenant,
            subject=body.subject,
            stage=body.stage or "",
            args=args,
            priority=DEFAULT_PRIORITY if body.priority is None else body.priority,
            due_at=due_at,
            expires_at=expires_at,
            key=body.key,
            gates=self._uses(body, lane, tenant) if body.gates else (),
            policy=self._policy(body),
            candidates=tuple(body.candidates or ()),
        )

    def _uses(self, body: JobBody, lane: str, tenant: str) -> tuple[GateUse, ...]:
        values = {**body.args, "tenant": tenant, "lane": lane, "kind": body.kind}
        return gate_uses(body.gates or (), self._gates, values, cascade=body.candidates is not None)

    def _policy(self, body: JobBody) -> JobPolicy:
        """Return the policy of a job without a kind; omitted fields have the engine's defaults."""
        if body.candidates is None and body.model_fields_set.isdisjoint(_OF_POLICY):
            return DEFAULT_POLICY
        policy = replace(
            self._options(body, (body.kind,)),
            cascade=body.candidates is not None,
            on_accepted=self._follow_up(body.on_accepted, (body.kind,)),
        )
        # The same object, so that stores can compare by identity.
        return DEFAULT_POLICY if policy == DEFAULT_POLICY else policy

    def _options(self, body: OptionsBody, before: tuple[str, ...]) -> JobPolicy:
        usual = DEFAULT_POLICY
        return JobPolicy(
            retry=_retry(body.retry),
            timeout_ms=body.timeout,
            start_within_ms=_or_default(body.start_within, usual.start_within_ms),
            on_deadline=body.on_deadline or usual.on_deadline,
            reconcile=body.reconcile,
            reconcile_within_ms=_or_default(body.reconcile_within, usual.reconcile_within_ms),
            on_final=self._follow_up(body.on_final, before),
            keep_ms=_or_default(body.keep, usual.keep_ms),
            key_for_ms=_or_default(body.key_for, usual.key_for_ms),
        )

    def _follow_up(
        self, given: FollowUpBody | AcceptedBody | None, before: tuple[str, ...]
    ) -> FollowUp | None:
        if given is None:
            return None
        states = given.states if isinstance(given, FollowUpBody) else ()
        states = tuple(State(one) for one in dict.fromkeys(states))
        kind, policy = self._kinds.get(given.kind), None
        if given.policy is not None:
            policy = self._options(given.policy, (*before, given.kind))
        elif kind is not None:
            policy = kind.policy_after(before)
        return FollowUp(kind=given.kind, lane=given.lane, states=states, policy=policy)


def _are_equal(ours: NewJob, theirs: NewJob) -> bool:
    """Return whether the gates, policy and stage of a request equal those of the kind."""
    same = set(ours.gates) == set(theirs.gates)
    return same and (ours.policy, ours.stage) == (theirs.policy, theirs.stage)


_OF_POLICY = frozenset(POLICY_FIELDS) - {"gates", "stage", "cascade"}


def _or_default(given: int | None, usual: int) -> int:
    return usual if given is None else given


def _retry(given: RetryBody | None) -> RetryPolicy:
    if given is None:
        return DEFAULT_POLICY.retry
    return Backoff(
        attempts=given.attempts,
        base=f"{given.base}ms",
        factor=given.factor,
        cap=f"{given.cap}ms",
        jitter=given.jitter,
    )


async def send_jobs(
    service: Service, jobs: Sequence[NewJob], *, caller: Caller = OPEN_CALLER
) -> list[Sent]:
    """Store jobs in batches of a thousand, each of which is stored in one step or not at all.

    Returns:
        For each job, in order, which job exists and whether this call created it.

    Raises:
        HeadwayError: a batch was refused, or the store is unavailable. If there are several
            batches, the problem has the number of jobs already `stored`.
    """
    replies: list[Sent] = []
    for start in range(0, len(jobs), MAX_BATCH):
        if start:
            await service.timing.pause(0)  # not every store yields to the event loop
        step = jobs[start : start + MAX_BATCH]
        try:
            replies += await _enqueue(service, step)
        except HeadwayError as refused:
            error = refused
            if isinstance(refused, IdConflict | KeyConflict):
                error = await hide_conflict(service, caller, refused)
            if len(jobs) > MAX_BATCH:
                add_members(error, stored=start)
            raise error from None
        service.long_polls.note_lanes({job.lane for job in step})
    return replies


async def _enqueue(service: Service, step: Sequence[NewJob]) -> list[Sent]:
    if service.app is not None and service.app.store is service.store:
        # The App declares its gates again if the store was lost since.
        return await service.app.send_many_async(step)
    return await service.store.enqueue(step)
