"""Insertion of new jobs, for enqueue and for every other step that creates jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from types import MappingProxyType

from msgspec.structs import replace

from headway.contract.store import Sent
from headway.core.cascade import CANDIDATE, Cascade, in_turn
from headway.core.check import check_gates, check_jobs
from headway.core.errors import (
    BacklogFull,
    CallerError,
    IdConflict,
    InvalidValue,
    KeyConflict,
    UnknownGate,
)
from headway.core.gates.spec import GateUse
from headway.core.job import (
    DEFAULT_POLICY,
    FollowUp,
    JobPolicy,
    NewJob,
    body_hash,
    derived_id,
    ids_after,
)
from headway.core.retry import RetryPolicy
from headway.core.state import FINAL, State
from headway.stores.ledger.gate_cache import GateCache, ensure_hours
from headway.stores.ledger.ledger import Ledger, ReadAhead
from headway.stores.ledger.rows import FlowKey, JobRow, KeyRow


def kept_for(policy: JobPolicy, *, keyed: bool) -> int:
    """Return how long a job is kept after its end, ms; at least as long as its key refers to it."""
    return max(policy.keep_ms, policy.key_for_ms) if keyed else policy.keep_ms


# It retries until the deadline: if it gave up sooner, the permits would stay taken until then.
_RECONCILE_POLICY = JobPolicy(retry=RetryPolicy(attempts=100_000, base_ms=1_000, cap_ms=30_000))


def follow_up(row: JobRow, follow: FollowUp) -> NewJob:
    """Return the `on_final` job of a job that ended; the same life always has the same job.

    Its id is derived. If that is taken, the next id of the series is used.
    """
    body = {"job": row.id, "state": str(row.state), "reason": row.reason}
    return _following(row, derived_id("on_final", row.id, row.life), follow, body)


def accepted_job(row: JobRow, follow: FollowUp) -> NewJob:
    """Return the `on_accepted` job of an accepted job; the same run always has the same job."""
    body = {"job": row.id, "state": "accepted", "candidate": row.candidate, "run": row.run}
    return _following(row, derived_id("on_accepted", row.id, row.run), follow, body)


def reconcile_job(row: JobRow, kind: str) -> NewJob:
    """Return the job that asks the provider about a run; each request to it has its own job."""
    body = {"job": row.id, "run": row.run, "asked": row.reconciles}
    derived = derived_id("reconcile", row.id, row.run, row.reconciles)
    return _following(row, derived, FollowUp(kind=kind, policy=_RECONCILE_POLICY), body)


def _following(row: JobRow, derived: str, follow: FollowUp, body: Mapping[str, object]) -> NewJob:
    return NewJob(
        id=derived,
        kind=follow.kind,
        lane=follow.lane or row.lane,
        tenant=row.tenant,
        subject=row.subject,
        policy=follow.policy or DEFAULT_POLICY,
        args=json.dumps(body, separators=(",", ":")).encode(),
    )


def flow_of(
    cache: GateCache, lane: str, tenant: str, kind: str, gates: Sequence[GateUse]
) -> tuple[int, tuple[GateUse, ...]]:
    """Find or create the flow of a job.

    Args:
        cache: the step's gates; hours used for the first time are added to it.

    Returns:
        The flow's number, and the keyed ones of the gates.

    Raises:
        UnknownGate: a gate is not declared; the step must be rolled back.
        InvalidValue: the gates cannot be combined, or a gate is used as shared but declared as
            keyed, or the reverse; the step must be rolled back.
    """
    keyed: tuple[GateUse, ...] = ()
    if gates:
        make_ready(cache, kind, gates)
        keyed = tuple([use for use in gates if not use.shared])
    return cache.ledger.jobs.flow_number(flow_key(lane, tenant, kind, gates)), keyed


def flow_key(lane: str, tenant: str, kind: str, gates: Sequence[GateUse]) -> FlowKey:
    """Return the flow of a job that uses these gates."""
    shared = tuple([use for use in gates if use.shared]) if gates else ()
    return FlowKey(lane, tenant, kind, shared)


def make_ready(cache: GateCache, kind: str, gates: Sequence[GateUse]) -> None:
    """Validate the gates of a job, and compute hours that are used for the first time.

    Args:
        cache: the step's gates; those hours are added to it.

    Raises:
        UnknownGate: as in `flow_of`.
        InvalidValue: as in `flow_of`.
    """
    check_declared(cache, kind, gates)
    for use in gates:
        if use.zone is not None:
            ensure_hours(cache, use)


def check_declared(cache: GateCache, kind: str, gates: Sequence[GateUse]) -> None:
    """Validate the gates of a job as they are declared now.

    Raises:
        UnknownGate: as in `flow_of`.
        InvalidValue: as in `flow_of`.
    """
    check_gates(kind, gates)
    for use in gates:
        spec = cache.spec(use.template)
        if spec is None:
            message = f"a job of kind {kind!r} needs the gate {use.template!r}"
            raise UnknownGate(message, hint="it is not declared; declare it before you enqueue")
        if spec.shared != use.shared:
            one, other = ("shared", "keyed") if spec.shared else ("keyed", "shared")
            message = f"the gate {use.template!r} is {one}, but the job uses it as {other}"
            raise InvalidValue(message, hint="use it as it is declared")
        cache.refuse_others_name(use)


def check_turns(
    cache: GateCache, kind: str, gates: Sequence[GateUse], candidates: Sequence[str]
) -> None:
    """Validate a cascade's gates as they are named in the turn of each candidate.

    Raises:
        InvalidValue: in a turn, a name is not valid, two gates have the same one, or one has the
            name of another gate; the step must be rolled back.
    """
    turns = [use for use in gates if CANDIDATE in use.name]
    if not turns or not candidates:
        return
    if not any(cache.may_share_name(use, gates) for use in turns):
        # Only the longest name may be refused.
        candidates = (max(candidates, key=len),)
    for candidate in candidates:
        uses = [in_turn(use, candidate) for use in gates]
        check_gates(kind, uses)
        for use in uses:
            cache.refuse_others_name(use)


_ID, _KEY = attrgetter("id"), attrgetter("key")
_SHAPE = attrgetter("lane", "tenant", "kind", "gates")
_LANE, _PLACE = attrgetter("lane"), attrgetter("lane", "state")
_DUE = attrgetter("lane", "due_at")

Shape = tuple[str, str, str, tuple[GateUse, ...], int]
NOW: Mapping[str, int] = MappingProxyType({})
"""All jobs of a batch are created now."""
FIRST_PART, UNDIVIDED = 64, 250
"""A batch of more rows than `UNDIVIDED` is written in parts of 64, 128, 256...: a server stores one
part while the next is built. A row takes half as long to build as to store."""
MOST_IDS_READ = 64
"""Most ids of a series that are looked up together."""


class Insertion:
    """One batch of new jobs."""

    def __init__(
        self,
        ledger: Ledger,
        cache: GateCache,
        *,
        limited: bool,
        derived: bool,
        created: Mapping[str, int],
    ) -> None:
        self.ledger = ledger
        self.created = created
        self.limited = limited
        self.derived = derived
        self.cache = cache
        self.models: dict[Shape, JobRow] = {}
        self.last: NewJob | None = None
        self.last_model: JobRow
        self.rows: list[JobRow] = []
        self.keys: dict[tuple[str, str], KeyRow] = {}
        self.follow: list[NewJob] = []
        self.now = ledger.now

    def add(self, jobs: Sequence[NewJob]) -> list[Sent]:
        """Insert jobs that do not exist; return replies in the order of the jobs."""
        check_jobs(jobs)
        self._read_flows_ahead(jobs)
        ids = list(map(_ID, jobs))
        known = self.ledger.jobs.known(ids)
        if self.derived and known:
            jobs = [self._find_id(job) if job.id in known else job for job in jobs]
        keyed = any(map(_KEY, jobs))  # a key is never empty
        key_rows = self._valid_key_rows(jobs) if keyed else {}
        # Usually none of the jobs can exist, and none needs to be looked up.
        all_new = not (known or keyed) and len(set(ids)) == len(ids)
        in_parts = self.limited and len(jobs) > UNDIVIDED and self._may_split(jobs)
        part = FIRST_PART if in_parts else len(jobs)
        seen: dict[str, NewJob] = {}
        replies: list[Sent] = []
        for job in jobs:
            existing = None if all_new else self._existing(job, known, seen, key_rows)
            if existing is not None:
                replies.append(Sent(existing, created=False))
                continue
            self._add_row(job)
            replies.append(Sent(job.id, created=True))
            if len(self.rows) == part:
                self._write()
                part *= 2
        self._write()
        if self.follow:
            insert_new(self.ledger, self.cache, self.follow, limited=False, derived=True)
        return replies

    def _existing(
        self,
        job: NewJob,
        known: Collection[str],
        seen: dict[str, NewJob],
        key_rows: dict[tuple[str, str], KeyRow],
    ) -> str | None:
        """Return the id of the job that is this one; None if it is new, which is then recorded.

        Args:
            known: ids of stored jobs.
            seen: the new jobs before this one in the batch, by id.
            key_rows: the valid keys, stored or of the batch.

        Raises:
            IdConflict: the job of its id has another body.
            KeyConflict: the job of its key has another body.
        """
        if job.id in known:
            self._check_same(job)
            return job.id
        if job.id in seen:
            _refuse_other_body(job, seen[job.id].body_hash())
            return job.id
        holder = self._holder_or_take(job, job.key, key_rows) if job.key else None
        if holder is None:
            seen[job.id] = job
        return holder

    def _may_split(self, jobs: Sequence[NewJob]) -> bool:
        """Return whether the batch may be written in parts.

        A lane's `max_backlog` must be checked against all its new jobs at once.
        """
        lanes = self.ledger.lanes.load(dict.fromkeys(map(_LANE, jobs)))
        return all(row.current.max_backlog is None for row in lanes.values())

    def _read_flows_ahead(self, jobs: Sequence[NewJob]) -> None:
        shapes = dict.fromkeys(map(_SHAPE, jobs))
        if len(shapes) > 1 and self._are_accepted(shapes):
            self.ledger.read_ahead(ReadAhead(flows=[flow_key(*shape) for shape in shapes]))

    def _are_accepted(self, shapes: Iterable[tuple[str, str, str, tuple[GateUse, ...]]]) -> bool:
        """Return whether all gates may be used like this: a refused job must leave no flow."""
        with suppress(CallerError):
            for kind, gates in {(kind, gates) for _, _, kind, gates in shapes}:
                check_declared(self.cache, kind, gates)
            return True
        return False

    def _find_id(self, job: NewJob) -> NewJob:
        """Return the job under the first free id of its series.

        Callers can choose ids, so another job may have the derived id, even with the same body.
        The follow-up is inserted nevertheless. A repeated step does not get here, because its own
        guard detects the repeat.
        """
        series = [job.id]
        while True:
            series = ids_after(series[-1], min(2 * len(series), MOST_IDS_READ))
            taken = self.ledger.jobs.known(series)
            free = next((one for one in series if one not in taken), None)
            if free is not None:
                return job.changed(id=free)

    def _check_same(self, job: NewJob) -> None:
        _refuse_other_body(job, _body_hash_of(self.ledger.jobs.load([job.id])[job.id]))

    def _valid_key_rows(self, jobs: Sequence[NewJob]) -> dict[tuple[str, str], KeyRow]:
        """Return the key rows of these jobs that are valid now."""
        places = [(job.tenant, job.key) for job in jobs if job.key is not None]
        now, rows = self.ledger.now, self.ledger.keys.load(places)
        return {
            (row.tenant, row.key): row
            for row in rows.values()
            if row.until_at is None or row.until_at > now
        }

    def _holder_or_take(
        self, job: NewJob, key: str, key_rows: dict[tuple[str, str], KeyRow]
    ) -> str | None:
        """Return the id of the job that holds the key; if none does, take it for the new job.

        Raises:
            KeyConflict: that job has another body.
        """
        place = (job.tenant, key)
        body = job.body_hash()
        held = key_rows.get(place)
        if held is None:
            row = KeyRow(job.tenant, key, job.id, body, None)
            key_rows[place] = self.keys[place] = row
            return None
        if held.body != body:
            message = f"the key {key!r} names job {held.job}, which has a different body"
            raise KeyConflict(
                message, hint="kind, lane, subject and arguments must be the same under one key"
            )
        return held.job

    def _add_row(self, job: NewJob) -> None:
        row = replace(
            self._row_to_copy(job),
            id=job.id,
            subject=job.subject,
            stage=job.stage,
            args=job.args,
            priority=job.priority,
            expires_at=job.expires_at,
            key=job.key,
            entry=job.entry,
            fired_at=job.fired_at,
        )
        if self.created:
            row.created_at = self.created.get(job.id, self.now)
        if job.due_at is not None:
            row.due_at = job.due_at
        # Overlap of a timetable's fire is decided at its promotion, even if it is already due.
        if row.due_at > self.now or job.entry is not None:
            row.state = State.SCHEDULED
        if job.key is not None or job.entry is not None:
            row.care = True
        if job.policy.cascade:
            row.cascade = Cascade(left=job.candidates)
            check_turns(self.cache, job.kind, job.gates, job.candidates)
            if row.cascade.exhausted:
                self._end_exhausted(row, job)
        self.rows.append(row)

    def _row_to_copy(self, job: NewJob) -> JobRow:
        """Return the row to copy for jobs with the same lane, tenant, kind, gates and policy."""
        policy, before = job.policy, self.last
        if (
            before is not None
            and job.kind is before.kind
            and job.gates is before.gates
            and policy is before.policy
            and job.lane is before.lane
            and job.tenant is before.tenant
        ):
            # Jobs that one kind made share these objects, and comparing costs less than hashing.
            return self.last_model
        # Jobs of a batch share policy objects, so the object's id is enough.
        shape = (job.lane, job.tenant, job.kind, job.gates, id(policy))
        model = self.models.get(shape)
        if model is None:
            flow, keyed = flow_of(self.cache, job.lane, job.tenant, job.kind, job.gates)
            model = self.models[shape] = JobRow(
                id="",
                lane=job.lane,
                tenant=job.tenant,
                kind=job.kind,
                subject=None,
                stage="",
                priority=0,
                due_at=self.now,
                args=b"",
                flow=flow,
                policy=self.ledger.jobs.policy_number(policy),
                state=State.WAITING,
                created_at=self.now,
                keyed=keyed,
                care=needs_care(policy.on_final is not None, policy.cascade, policy.keep_ms),
            )
        self.last, self.last_model = job, model
        return model

    def _end_exhausted(self, row: JobRow, job: NewJob) -> None:
        """End a cascade without candidates at once, with its follow-up."""
        now = self.ledger.now
        row.state, row.reason = State.DEAD, "exhausted"
        row.finished_at = now
        row.purge_at = now + kept_for(job.policy, keyed=job.key is not None)
        if job.key is not None:
            place = (job.tenant, job.key)
            until_at = now + job.policy.key_for_ms
            self.keys[place] = self.keys[place]._replace(until_at=until_at)
        follow = job.policy.on_final
        if follow is not None and State.DEAD in follow.states:
            self.follow.append(follow_up(row, follow))
        self.ledger.counts.happened("dead")

    def _write(self) -> None:
        if not self.rows:
            return
        ledger = self.ledger
        counts = Counter(map(_PLACE, self.rows))
        lanes = dict.fromkeys([lane for lane, _ in counts])
        ledger.lanes.ensure(lanes)
        if self.limited:
            self._check_backlog(lanes, counts)
        ledger.jobs.insert(self.rows)
        ledger.keys.save(self.keys.values())
        for (lane, state), n in counts.items():
            ledger.counts.move(lane, None, state, n)
            if state is State.WAITING:
                ledger.wake(lane)
        ledger.counts.happened("enqueued", len(self.rows))
        if any(state is State.SCHEDULED for _, state in counts):
            later = (row for row in self.rows if row.state is State.SCHEDULED)
            for lane, at in dict.fromkeys(map(_DUE, later)):
                ledger.wake(lane, at)
        self.rows, self.keys = [], {}

    def _check_backlog(self, lanes: Iterable[str], counts: Mapping[tuple[str, State], int]) -> None:
        limited: dict[str, int] = {}
        for name, row in self.ledger.lanes.load(lanes).items():
            most = row.current.max_backlog
            if most is not None:
                limited[name] = most
        if not limited:
            return
        held = self.ledger.counts.of_lanes(limited)
        for lane, most in limited.items():
            new = sum(n for (name, _), n in counts.items() if name == lane)
            old = sum(n for state, n in held.get(lane, {}).items() if state not in FINAL)
            if old + new > most:
                message = (
                    f"lane {lane!r} holds {old} jobs of at most {most}; {new} more are refused"
                )
                raise BacklogFull(message, hint="try again later, or raise the lane's max_backlog")


def needs_care(has_follow_up: bool, cascade: bool, keep_ms: int) -> bool:
    """Return whether ending a job takes more than writing its state."""
    return has_follow_up or cascade or keep_ms != DEFAULT_POLICY.keep_ms


def insert_new(
    ledger: Ledger,
    cache: GateCache,
    jobs: Sequence[NewJob],
    *,
    limited: bool = True,
    derived: bool = False,
    created: Mapping[str, int] = NOW,
) -> list[Sent]:
    """Insert jobs that do not exist yet, within a step.

    Args:
        cache: the step's gates; hours used for the first time are added to it. The caller saves it.
        limited: whether a lane's `max_backlog` applies: to new work, not to follow-ups, fires, and
            work that is under way.
        derived: whether the ids are derived; if another job has one, the next id of its series is
            used instead of reporting a conflict.
        created: creation times by job id; the other jobs are created now.

    Returns:
        As `Store.enqueue`.

    Raises:
        KeyConflict: a key names a job with another body; the step must be rolled back.
        IdConflict: an id names a job with another body; the step must be rolled back.
        UnknownGate: a gate is not declared; the step must be rolled back.
        BacklogFull: a lane is full; the step must be rolled back.
    """
    return Insertion(ledger, cache, limited=limited, derived=derived, created=created).add(jobs)


def _body_hash_of(row: JobRow) -> bytes:
    return row.body or body_hash(row.kind, row.lane, row.tenant, row.subject, row.args)


def _refuse_other_body(job: NewJob, body: bytes) -> None:
    if job.body_hash() != body:
        message = f"a job {job.id} already exists with a different body"
        raise IdConflict(
            message, hint="use a new id, or over HTTP a new Idempotency-Key, for a new job"
        )
