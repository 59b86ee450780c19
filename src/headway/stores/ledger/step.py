"""One step of a verb on held or queued jobs: changes are collected, then written.

A verb changes rows with `end`, `requeue` and `move`. `flush` returns permits, writes the rows,
inserts follow-ups, and feeds, in that order.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from headway.contract.outcomes import Closing
from headway.core.cascade import CANDIDATE
from headway.core.errors import InvalidValue
from headway.core.job import NewJob
from headway.core.state import HELD, QUEUED, State, check_move
from headway.stores.ledger.feeding import feed_flow, feed_gate
from headway.stores.ledger.gate_cache import GateCache
from headway.stores.ledger.gaterows import (
    FOREVER,
    GateTemplates,
    PermitRow,
    ReturnedPermits,
    amounts_of,
)
from headway.stores.ledger.insert import follow_up, insert_new, kept_for
from headway.stores.ledger.ledger import NOTHING, Ledger, ReadAhead
from headway.stores.ledger.rows import JobRow, KeyRow, RunRow, SignalRow


class Step:
    """The changes of one verb.

    Args:
        templates: the declared gates, if the caller has read them.

    Attributes:
        rows: the jobs loaded so far, by id; `dirty` has those to write.
        runs: ended runs to add to the history of their jobs.
        releases: permits to return, as (job, gate, hold); None stands for all gates or all holds.
        tickets: (gate, flow) pairs whose next parked job is fed, because one has left.
        reserved: (gate, job) pairs whose reservation ends, because the job has left its queue.
        follow: follow-ups, whose ids are derived from the jobs that they follow.
        then: the jobs that outcomes asked for.
        woken: lanes to wake (None: all), each with the time (None: now).
        kept: events that were read ahead, by the key for which they are kept.
    """

    ledger: Ledger
    cache: GateCache
    rows: dict[str, JobRow]
    runs: list[RunRow]
    follow: list[NewJob]

    def __init__(self, ledger: Ledger, templates: GateTemplates | None = None) -> None:
        self.ledger = ledger
        self.cache = GateCache(ledger, templates)
        self.rows = {}
        self.dirty: dict[str, JobRow] = {}
        self.runs = []
        self.releases: list[tuple[str, str | None, str | None]] = []
        self.tickets: dict[tuple[str, int], None] = {}
        self.reserved: dict[tuple[str, str], None] = {}
        self.follow = []
        self.then: list[NewJob] = []
        self.woken: dict[tuple[str | None, int | None], None] = {}
        self.kept: dict[str, list[SignalRow]] = {}

    def load(
        self, ids: Iterable[str], ahead: ReadAhead = NOTHING, staying: Container[str] = ()
    ) -> None:
        """Load jobs that the step may change, and read ahead what ending them needs.

        Args:
            ahead: what else to read ahead.
            staying: ids of jobs that the step ends only if a cancel was requested.
        """
        ledger = self.ledger
        missing = [one for one in dict.fromkeys(ids) if one not in self.rows]
        ledger.read_ahead(ReadAhead(jobs=missing))
        found = ledger.jobs.load(missing)
        self.rows.update(found)
        rows = found.values()
        ends = tuple(row for row in rows if row.cancel_requested or row.id not in staying)
        ledger.read_ahead(ahead._replace(ends=ends))

    def row(self, job: str) -> JobRow | None:
        """Return a job, loaded once per step; None if it does not exist."""
        if job not in self.rows:
            self.load((job,))
        return self.rows.get(job)

    @property
    def dead(self) -> list[str]:
        """Ids of the jobs that the step made dead; it must not have loaded jobs already dead."""
        return sorted([row.id for row in self.rows.values() if row.state is State.DEAD])

    def changed(self, row: JobRow) -> None:
        """Mark a row to be written by `flush`."""
        self.rows[row.id] = self.dirty[row.id] = row

    def move(self, row: JobRow, new: State) -> None:
        """Move a job to another state, and update the counts."""
        check_move(row.state, new)
        if row.state in QUEUED:
            self._leave_queue(row)
        if row.state is not new:
            self.ledger.counts.move(row.lane, row.state, new)
        row.state = new
        self.changed(row)

    def _leave_queue(self, row: JobRow) -> None:
        waited_at = row.ticket or row.parked_at
        if row.ticket is not None:
            self.tickets[row.ticket, row.flow] = None
            row.ticket, row.ticket_amount = None, 0
        if row.parked_at is not None:
            # A parked job may have blocked the jobs behind it.
            self.tickets[row.parked_at, row.flow] = None
            row.blocked_ms += self.ledger.now - row.parked_since
            row.parked_at, row.unfit, row.ticket_amount = None, False, 0
        for use in (*self.ledger.jobs.flow(row.flow).shared, *row.keyed):
            if use.amount > 1:
                # A cascade's job reserves at the gate of the candidate for whom it waits.
                gate = waited_at if waited_at and CANDIDATE in use.name else use.name
                self.reserved[gate, row.id] = None

    def end(
        self,
        row: JobRow,
        state: State,
        outcome: str,
        *,
        reason: str = "",
        error: str = "",
        result: bytes | None = None,
    ) -> State:
        """End a job; a held job with a requested cancel ends as cancelled.

        Args:
            state: the final state without a requested cancel.
            outcome: recorded on the run, if the job is held; a cancel does not change it.
            result: JSON.
        """
        held = row.state in HELD
        if row.cancel_requested and held:
            state = State.CANCELLED
        if held:
            self.give_back(row)
        self.move(row, state)
        policy = self.ledger.jobs.policy(row.policy)
        now = self.ledger.now
        if held:
            row.outcome = outcome
            row.worker, row.last_worker = None, row.worker or row.last_worker
        row.reason = reason
        if held and outcome != "succeeded":
            row.error = _own_error(row, error)
        if result is not None:
            row.result = result
        row.finished_at = now
        row.purge_at = now + kept_for(policy, keyed=row.key is not None)
        row.deadline_at, row.in_doubt, row.cancel_requested = None, False, False
        self.ledger.counts.happened(str(state))
        if row.key is not None:
            keep_key(self.ledger, row, now + policy.key_for_ms)
        follow = policy.on_final
        if follow is not None and state in follow.states:
            self.follow.append(follow_up(row, follow))
        return state

    def requeue(
        self, row: JobRow, outcome: str, *, due_at: int | None, repeat: bool, error: str = ""
    ) -> State:
        """Put a held job back into its queue.

        A job with a requested cancel, or a cascade with no candidates left, ends instead.

        Args:
            due_at: when it is due again; None keeps its due time, and so its place.
            repeat: whether the attempt is repeated, and so not counted.
        """
        if row.cancel_requested:
            return self.end(row, State.CANCELLED, outcome, reason="cancelled", error=error)
        if row.cascade is not None and row.cascade.exhausted:
            return self.end(row, State.DEAD, outcome, reason="exhausted", error=error)
        self.give_back(row)
        error = _own_error(row, error)
        self.keep_run(row, outcome, error)
        if due_at is not None:
            row.due_at, row.blocked_ms = due_at, 0
        if repeat:
            row.attempt -= 1
        row.error, row.result = error or row.error, None
        self.move(row, State.SCHEDULED if row.due_at > self.ledger.now else State.WAITING)
        self.wake(row.lane, row.due_at)
        return row.state

    def keep_run(self, row: JobRow, outcome: str, error: str = "") -> None:
        """Add the ending run to the job's history, and reset the row for the next run."""
        if row.claimed_at is None:
            return
        self.runs.append(run_of(row, row.finished_at or self.ledger.now, outcome, error))
        row.worker, row.last_worker, row.claimed_at, row.handed_at = None, "", None, None
        row.deadline_at, row.in_doubt, row.reconciles = None, False, 0
        row.members, row.gated, row.outcome, row.progress = {}, False, "", None
        row.candidate = ""
        self.changed(row)

    def kept_events(self, key: str) -> list[SignalRow]:
        """Return the events kept for a key, from what was read ahead if possible."""
        events = self.kept.pop(key, None)
        return self.ledger.signals.kept(key) if events is None else events

    def give_back(self, row: JobRow, *, gate: str | None = None, hold: str | None = None) -> None:
        """Return a held job's permits: all, or those of one gate or hold.

        Returning them twice has no further effect.
        """
        self.releases.append((row.id, gate, hold))

    def close(self, closings: Iterable[Closing], author: str) -> None:
        """Close gates that a handler asked to close."""
        for closing in closings:
            until = closing.until_at
            if until is None:
                until = FOREVER if closing.for_ms is None else self.ledger.now + closing.for_ms
            self.close_gate(closing.gate, until, author, closing.reason)

    def close_gate(self, gate: str, until: int, author: str, reason: str) -> None:
        """Close a gate until a given time, unless its current closing ends no sooner.

        Raises:
            UnknownGate: the gate is not declared; the step must be rolled back.
            InvalidValue: it is a template of gates; the step must be rolled back.
        """
        if self.cache.template(gate) is not None and "{" in gate:
            message = f"{gate!r} is a template, not a single gate"
            raise InvalidValue(
                message, hint="close one of them by its resolved name, or pause the lane or kind"
            )
        row = self.cache.find(gate)
        if row is None:
            template, pool = self.cache.place_of(gate)
            row = self.cache.change(gate, template, pool)
        elif (row.closed_until or 0) >= until:
            return
        row = self.cache.change(gate, row.template, row.pool)
        row.closed_until, row.closed_by, row.closed_reason = until, author, reason
        self.cache.forget_view(gate)
        if until < FOREVER:
            # Jobs may be parked there by then, so a timer must process its opening.
            self.wake(None, until)
            row.timer_at = until if row.timer_at is None else min(row.timer_at, until)

    def wake(self, lane: str | None, at: int | None = None) -> None:
        """Wake a lane's waiters after the step."""
        self.woken[lane, at if at is not None and at > self.ledger.now else None] = None

    def flush(self) -> None:
        """Write all changes; the step may continue and be flushed again."""
        jobs = self.dirty or self.runs or self.follow or self.then
        gates = self.releases or self.tickets or self.reserved or self.cache.dirty
        if not (jobs or gates or self.woken):
            return
        freed = self._free_permits() + self._end_reservations()
        self.releases = []
        ledger = self.ledger
        if self.dirty:
            ledger.jobs.save(self.dirty.values())
            self.dirty = {}
        if self.runs:
            ledger.jobs.add_runs(self.runs)
            self.runs = []
        if self.follow:
            follow, self.follow = self.follow, []
            insert_new(ledger, self.cache, follow, limited=False, derived=True)
        if self.then:
            then, self.then = self.then, []
            insert_new(ledger, self.cache, then, limited=False)
        ledger.read_ahead(ReadAhead(gates=[*freed, *(gate for gate, _ in self.tickets)]))
        for gate, flow in self.tickets:
            feed_flow(self.cache, gate, flow, 1)
        self.tickets = {}
        for gate in freed:
            feed_gate(self.cache, gate)
        self.cache.save()
        for lane, at in self.woken:
            ledger.wake(lane, at)
        self.woken = {}

    def _free_permits(self) -> list[str]:
        """Return permits; see `return_permits`."""
        if not self.releases:
            return []
        ended = {job: None for job, gate, hold in self.releases if gate is None and hold is None}
        returned = self.ledger.permits.remove_all(ended) if ended else []
        rest = [one for one in self.releases if one[0] not in ended]
        if rest:
            returned += self._remove(self._named(rest))
        return self._give_back_all(returned)

    def _named(self, releases: Sequence[tuple[str, str | None, str | None]]) -> list[PermitRow]:
        """Return the permits that these releases name, each once."""
        held: dict[str, list[PermitRow]] = {}
        for permit in self.ledger.permits.of_jobs(dict.fromkeys(job for job, _, _ in releases)):
            held.setdefault(permit.job, []).append(permit)
        found = (
            permit
            for job, gate, hold in releases
            for permit in held.get(job, ())
            if (gate is None or gate in {permit.gate, permit.pool})
            and (hold is None or permit.hold == hold)
        )
        return [*dict.fromkeys(found)]

    def _end_reservations(self) -> list[str]:
        reserved, self.reserved = self.reserved, {}
        return self.cache.end_reservations(reserved) if reserved else []

    def return_permits(self, permits: Iterable[PermitRow]) -> list[str]:
        """Remove permits and count them as returned.

        Returns:
            The gates that now have room and may have parked jobs.
        """
        return self._give_back_all(self._remove(permits))

    def _remove(self, permits: Iterable[PermitRow]) -> list[ReturnedPermits]:
        permits = list(permits)
        self.ledger.permits.remove(permits)
        return amounts_of((one.gate, one.pool, one.amount) for one in permits)

    def _give_back_all(self, returned: Sequence[ReturnedPermits]) -> list[str]:
        if not returned:
            return []
        names = [name for gate, pool, _ in returned for name in (gate, pool) if name]
        self.ledger.read_ahead(ReadAhead(gates=names))
        return self.cache.give_back_all(returned)


def keep_key(ledger: Ledger, row: JobRow, until_at: int | None) -> None:
    """Keep a job's key until a given time, unless another job has the key.

    Args:
        until_at: None to keep it as long as the job.
    """
    place = (row.tenant, row.key or "")
    known = ledger.keys.load([place]).get(place)
    if known is not None and known.job == row.id:
        ledger.keys.save([KeyRow(known.tenant, known.key, row.id, known.body, until_at)])


def run_of(row: JobRow, ended_at: int | None, outcome: str, error: str) -> RunRow:
    """Return the last run of a job, which must have been claimed."""
    return RunRow(
        job=row.id,
        run=row.run,
        attempt=row.attempt,
        stage=row.stage,
        worker=row.worker or row.last_worker,
        claimed_at=row.claimed_at or 0,
        handed_at=row.handed_at,
        ended_at=ended_at,
        outcome=outcome,
        error=error,
        members=row.members,
        blocked_ms=row.blocked_ms,
        due_at=row.due_at,
        candidate=row.candidate,
    )


def run_error(row: JobRow) -> str:
    """Return the error of a job's last run, which must have ended."""
    return row.error if row.outcome and row.outcome != "succeeded" else ""


def _own_error(row: JobRow, error: str) -> str:
    """Return the error of the ending run, never that of an earlier run of the job.

    A row keeps the error of its last failed run until a hand-over clears it. From then on, the
    row's error is what this run's handler raised.
    """
    return error or (row.error if row.handed_at is not None else "")
