"""Operations as steps: the mode in which each starts, and the mode it falls back to."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest, SweepReply
from headway.contract.extensions import Suspicion
from headway.contract.outcomes import SettleRequest, Succeeded, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.core.errors import InvariantBroken
from headway.core.job import DEFAULT_POLICY, MAX_BATCH
from headway.stores.ledger import verbs
from headway.stores.ledger.promotion import promote
from headway.stores.ledger.step import Step
from headway.stores.ledger.verbs.settle import read_ahead_of, settle_all
from headway.stores.ledger.verbs.signal import read_ahead_of as signals_read_ahead_of
from headway.stores.ledger.verbs.signal import signals as apply_signals
from headway.stores.postgres.arrays import Texts, ids_of
from headway.stores.postgres.call_queue import AnyCall, share
from headway.stores.postgres.ledger import PostgresLedger
from headway.stores.postgres.numbers import FOLD_EVERY
from headway.stores.postgres.plain_claims import PlainClaims
from headway.stores.postgres.shared import Done
from headway.stores.postgres.statement import BoundSelect, Mode, NeedsMore, StepKind
from headway.stores.postgres.steps import Part, Steps
from headway.stores.postgres.tables.job_statements import (
    FINISH_ALL,
    FINISH_LIVE,
    HELD_BY,
    PROMOTE_DUE,
)
from headway.stores.postgres.tables.records import LOAD_WORKER
from headway.stores.sql.statement import FIRST_TOTAL, Row, Rows, Select, of

Answer = TypeVar("Answer")

_PROMOTE_DUE = Select(PROMOTE_DUE.text, of())
MOST_IDLE = 256
"""Maximum number of remembered kinds of steps whose last one found nothing."""


class ClaimsAndSweeps:
    """Claims and sweeps, which first look without the lock, if that may be enough.

    If the last step of its kind found nothing, the look is one trip. Before the first step of its
    kind, the look takes as many trips as it needs; the exclusive step after it then reads
    everything in one trip, and other steps wait no longer for it than for a later one.

    Args:
        steps: on the connection of exclusive steps.
        plain: claims of plain lanes, which learn here which lanes are plain.
    """

    def __init__(self, steps: Steps, plain: PlainClaims) -> None:
        self._steps = steps
        self._plain = plain
        self._idle: set[Hashable] = set()

    def claim(self, request: ClaimRequest) -> tuple[ClaimReply | Suspicion, Done]:
        """See `Store.claim`.

        Returns:
            The reply or why nothing may be claimed, and what the step has done.
        """
        return self._run(self.part(request))

    def part(self, request: ClaimRequest) -> Part[ClaimReply | Suspicion]:
        """Return a claim as a part of an exclusive step."""
        lanes = tuple(lane for lane, _ in request.lanes)
        kind = StepKind(("claim", lanes, request.free > 0), request.n)

        def verb(ledger: PostgresLedger) -> ClaimReply | Suspicion:
            # Returned, not raised, so that the step commits the suspicion.
            reply = ledger.facts.suspicion() or verbs.claim(ledger, request)
            if isinstance(reply, ClaimReply):
                # Only hints, which each plain claim checks: the step may still be rolled back.
                self._plain.learn(request, reply, ledger.session.cache.found)
                if reply.jobs:
                    self._idle.discard(kind.name)
            if ledger.session.cache.promoted:
                # The store was changed, so nothing may start; what became waiting is counted.
                step = Step(ledger)
                promote(step, lanes)
                step.flush()
            return reply

        def take(answers: Sequence[Rows]) -> None:
            self._steps.session.cache.promoted = answers[1]

        claim = (Texts(lanes), MAX_BATCH, request.worker, request.request)
        first = [(LOAD_WORKER, (request.worker,)), (_PROMOTE_DUE, claim)]
        return Part(verb, kind, first, take)

    def sweep(self, n: int, keep_trail_ms: int) -> tuple[SweepReply, Done]:
        """See `Store.sweep`."""

        def verb(ledger: PostgresLedger) -> SweepReply:
            return verbs.sweep(ledger, n, keep_trail_ms)

        if self._steps.shared.unfolded >= FOLD_EVERY:
            # Now, in a short step, rather than in the next claim, whose jobs would start later.
            self._steps.run(Mode.EXCLUSIVE, lambda _: None)
        return self._run(Part(verb, StepKind(("sweep", n))))

    def _run(self, part: Part[Answer]) -> tuple[Answer, Done]:
        steps, idle = self._steps, self._idle
        assert part.kind is not None  # noqa: S101  (claims and sweeps have one)
        name = part.kind.name
        with suppress(NeedsMore):
            reads = [one for one in part.first if one[0] is not _PROMOTE_DUE]
            look = part._replace(first=reads, take=None)
            if name in idle:
                return steps.run_part(Mode.PEEK, look)
            if name not in steps.shared.prefetches:
                found = steps.read_or_abort(look)
                self._note_idle(name)
                return found
        idle.discard(name)
        answer, done = steps.run_part(Mode.EXCLUSIVE, part)
        if not done.wrote:
            self._note_idle(name)
        return answer, done

    def _note_idle(self, kind: Hashable) -> None:
        if len(self._idle) >= MOST_IDLE:
            self._idle.clear()
        self._idle.add(kind)


_FINISH = Select(FINISH_LIVE, of("held"))
MOST_GATED = 256
"""Maximum number of remembered workers whose last settlement needed an exclusive step."""

Operation = SettleRequest | Signal | ClaimRequest
Verdicts = list[list[Verdict]]
_Finished = dict[tuple[str, int], list[str]]
"""The ids of jobs that plainly succeeded, by worker and run."""
_SETTLED = Done(wrote=True, woken={}, notified=False)


class Settles:
    """Settlements: plain successes beside other steps, the rest exclusively.

    Args:
        steps: on the connection that settles beside exclusive steps.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._gated: set[str] = set()

    def beside(self, request: SettleRequest) -> bool:
        """Return whether a request can probably be settled beside other steps."""
        succeeded = all(type(one) is Succeeded for one in request.outcomes)
        return succeeded and request.worker not in self._gated

    def settle(self, requests: Sequence[SettleRequest]) -> tuple[Verdicts, Done]:
        """Settle several requests, all of them or none; see `Store.settle`."""
        plain = [runs for request in requests if (runs := _plain_runs(request)) is not None]
        if len(plain) == len(requests):
            with suppress(NeedsMore):
                self._finish_in_one_trip(_by_run(requests, plain))
                return [[Verdict.DONE] * len(runs) for runs in plain], _SETTLED
            part = self.part(requests)
            try:
                return self._steps.run_part(Mode.SHARED, part._replace(kind=None, ahead=None))
            except NeedsMore:
                if len(self._gated) >= MOST_GATED:
                    self._gated.clear()
                self._gated.update(request.worker for request in requests)
        (verdicts,), done = self._steps.run_parts([self.part(requests)])
        return verdicts, done

    def _finish_in_one_trip(self, finished: _Finished) -> None:
        """Finish jobs that plainly succeeded, in one trip.

        Raises:
            NeedsMore: a job is not live, or needs more than that; nothing was written.
        """
        shared, words = self._steps.shared, self._steps.session.words
        numbers = {worker: words.find(worker) for worker, _ in finished}
        if shared.options.pooled or None in numbers.values():
            raise NeedsMore
        rest = (FIRST_TOTAL - words.number("succeeded"), *shared.known_facts())
        self._steps.run_in_one_trip(
            [
                (FINISH_ALL, (*_bound(jobs, run, numbers[worker], worker), *rest))
                for (worker, run), jobs in finished.items()
            ]
        )

    def part(self, requests: Sequence[SettleRequest]) -> Part[Verdicts]:
        """Return settlements as a part of a step."""
        workers = sorted({request.worker for request in requests})
        plain = [_plain_runs(request) for request in requests]
        finished = _by_run(requests, plain)
        first: list[BoundSelect] = [(LOAD_WORKER, (worker,)) for worker in workers]
        sent: list[tuple[str, int, list[str]]] = []
        for (worker, run), jobs in finished.items():
            worker_no = self._steps.session.words.find(worker)
            if worker_no is not None:
                sent.append((worker, run, jobs))
                first.append((_FINISH, _bound(jobs, run, worker_no, worker)))
        known: dict[tuple[str, int, str], Row | None] = {}

        def take(answers: Sequence[Rows]) -> None:
            known.clear()
            for (worker, run, jobs), rows in zip(sent, answers[len(workers) :], strict=True):
                known.update(((worker, run, job), None) for job in jobs)
                known.update(((worker, run, row[0]), row) for row in rows)

        def verb(ledger: PostgresLedger) -> Verdicts:
            session = ledger.session
            session.cache.finished = known
            verdicts = settle_all(ledger, requests)
            if any(known.values()):
                message = "jobs were ended ahead of a settlement that did not ask for it"
                raise InvariantBroken(message)
            if None not in plain and not session.wrote_exclusively:
                self._gated.difference_update(workers)
            return verdicts

        gated = [one.job for request in requests for one in request.outcomes]
        ahead = read_ahead_of(requests)._replace(permits=gated)
        kind = StepKind(("settle", *workers) if len(workers) == 1 else ("settle",))
        return Part(verb, kind, first, take, ahead)


def joins_turn(group: Sequence[AnyCall], other: AnyCall) -> bool:
    """Return whether a call may share an exclusive step with these.

    A claim shares a step only with plain successes, because they change nothing that it has read
    ahead. After other settlements, signals and claims it would have to read everything again.
    """
    if not share(group, other):
        return False
    if type(other.item) is ClaimRequest:
        return all(_is_plain(one.item) for one in group)
    if type(group[0].item) is ClaimRequest:
        return _is_plain(other.item)
    # No call joins after a claim.
    return type(group[-1].item) is not ClaimRequest


def _is_plain(item: object) -> bool:
    return isinstance(item, SettleRequest) and _plain_runs(item) is not None


class Turns:
    """Exclusive steps that calls of one process share; see `joins_turn`.

    A worker whose handlers finish settles and claims at the same time. In one step it waits for the
    lock once, and can start jobs in the room that it has made.

    Args:
        steps: on the connection of exclusive steps.
    """

    def __init__(self, steps: Steps, claims: ClaimsAndSweeps, settles: Settles) -> None:
        self._steps = steps
        self._claims = claims
        self._settles = settles

    def run(self, items: Sequence[Operation]) -> tuple[list[Any], Done]:
        """Run operations in `_ORDER`, all of them or none.

        Returns:
            Their answers in the order of `items`, and what the step has done.
        """
        settles = [one for one in items if isinstance(one, SettleRequest)]
        signals = [one for one in items if isinstance(one, Signal)]
        claims = [one for one in items if isinstance(one, ClaimRequest)]
        if len(claims) == len(items) == 1:
            reply, done = self._claims.claim(claims[0])
            return [reply], done
        parts: list[Part[Any]] = []
        if settles:
            parts.append(self._settles.part(settles))
        if signals:

            def verb(ledger: PostgresLedger) -> list[SignalReply]:
                return apply_signals(ledger, signals)

            parts.append(Part(verb, ahead=signals_read_ahead_of(signals)))
        merged = len(parts)
        answers, done = self._steps.run_parts([*parts, *map(self._claims.part, claims)])
        ordered = [*chain.from_iterable(answers[:merged]), *answers[merged:]]
        places = sorted(range(len(items)), key=lambda place: _ORDER.index(type(items[place])))
        by_place = dict(zip(places, ordered, strict=True))
        return [by_place[place] for place in range(len(items))], done


_ORDER = (SettleRequest, Signal, ClaimRequest)
"""The order in which a step runs operations: first those that may release permits."""


def _by_run(
    requests: Sequence[SettleRequest], plain: Sequence[Sequence[tuple[str, int]] | None]
) -> _Finished:
    finished: _Finished = {}
    for request, runs in zip(requests, plain, strict=True):
        for job, run in runs or ():
            finished.setdefault((request.worker, run), []).append(job)
    return finished


def _bound(jobs: Sequence[str], run: int, worker_no: int | None, worker: str) -> tuple[object, ...]:
    """Return the parameters of `FINISH_LIVE`."""
    return ids_of(jobs), run, worker_no, DEFAULT_POLICY.keep_ms, worker


def _plain_runs(request: SettleRequest) -> list[tuple[str, int]] | None:
    """Return a request's runs if all are plain successes, with each job once; else None."""
    outcomes = request.outcomes
    if len(outcomes) > MAX_BATCH or len(request.plain()) < max(1, len(outcomes)):
        return None
    return [(one.job, one.run) for one in outcomes]


_NEEDS_EXCLUSIVE = (None, Done(wrote=False, woken={}, notified=False))


class Beats:
    """Heartbeats, beside exclusive steps if possible, so that no other call delays a lease.

    A lease is one row, written only if it is unchanged since it was read. So a beat and an
    exclusive step that write the same worker cannot both commit.

    Args:
        steps: on the connection of beats.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def beat(self, request: BeatRequest) -> tuple[BeatReply | None, Done]:
        """See `Store.beat`.

        Returns:
            The reply, and what the step has done. The reply is None if the beat must be repeated in
            an exclusive step because it changes jobs; the lease is already extended if it has not
            ended.
        """
        if request.leaving:
            return _NEEDS_EXCLUSIVE
        if not request.progress:
            with suppress(NeedsMore):
                return run_beat(self._steps, Mode.BEAT, request)
        # If the lease has ended, this is refused too, because the worker has lost its runs.
        with suppress(NeedsMore):
            run_beat(self._steps, Mode.BEAT, replace(request, progress=(), request=0))
        return _NEEDS_EXCLUSIVE


def run_beat(steps: Steps, mode: Mode, request: BeatRequest) -> tuple[BeatReply, Done]:
    """Run a beat as a step of this mode; all reads are sent with its start."""
    worker = request.worker
    first = ((LOAD_WORKER, (worker,)), (HELD_BY, (worker.encode(), None)))

    def verb(ledger: PostgresLedger) -> BeatReply:
        return verbs.beat(ledger, request)

    return steps.run_part(mode, Part(verb, first=first))
