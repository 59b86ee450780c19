"""Operations as steps: which mode each begins in, and which it falls back to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest, SweepReply
from headway.contract.extensions import Suspicion
from headway.contract.outcomes import SettleRequest, Succeeded, Verdict
from headway.core.errors import InvariantBroken
from headway.core.job import DEFAULT_POLICY, MAX_BATCH
from headway.stores.ledger import verbs
from headway.stores.ledger.verbs.settle import look_of, settle_all
from headway.stores.postgres.arrays import ids_of
from headway.stores.postgres.ledger import PostgresLedger
from headway.stores.postgres.plain_claims import PlainClaims
from headway.stores.postgres.shared import Done
from headway.stores.postgres.statement import Asked, Mode, NeedsMore
from headway.stores.postgres.steps import Steps, Verb
from headway.stores.postgres.tables.job_statements import FINISH_LIVE
from headway.stores.postgres.tables.records import LOAD_WORKER
from headway.stores.sql.statement import Ask, Rows, of

Answer = TypeVar("Answer")

MOST_IDLE = 256
"""Kinds of steps whose last one found nothing, at most."""


class Looks:
    """Claims and sweeps: a look without the lock if the last one found nothing.

    Args:
        steps: on the connection of exclusive steps.
        plain: claims of plain lanes, which learns here which lanes are plain.
    """

    def __init__(self, steps: Steps, plain: PlainClaims) -> None:
        self._steps = steps
        self._plain = plain
        self._idle: set[object] = set()

    def claim(self, request: ClaimRequest) -> tuple[ClaimReply | Suspicion, Done]:
        """See `Store.claim`.

        Returns:
            The reply, or why nothing may be claimed; and what the step has done.
        """

        def verb(ledger: PostgresLedger) -> ClaimReply | Suspicion:
            # Returned and not raised, so that the step commits what it found.
            return ledger.facts.suspicion() or verbs.claim(ledger, request)

        lanes = tuple(lane for lane, _ in request.lanes)
        kind = ("claim", request.worker, lanes, min(request.n, request.free), request.n)
        if (looked := self._look(verb, kind)) is not None:
            return looked
        reply, done = self._steps.run(Mode.EXCLUSIVE, verb, kind=kind)
        if isinstance(reply, ClaimReply):
            self._plain.learn(request, reply, self._steps.session.cache.found)
            self._note(kind, idle=not reply.jobs and not done.wrote)
        return reply, done

    def sweep(self, n: int, keep_trail_ms: int) -> tuple[SweepReply, Done]:
        """See `Store.sweep`."""

        def verb(ledger: PostgresLedger) -> SweepReply:
            return verbs.sweep(ledger, n, keep_trail_ms)

        kind = ("sweep", n)
        if (looked := self._look(verb, kind)) is not None:
            return looked
        reply, done = self._steps.run(Mode.EXCLUSIVE, verb, kind=kind)
        self._note(kind, idle=not done.wrote)
        return reply, done

    def _look(self, verb: Verb[Answer], kind: object) -> tuple[Answer, Done] | None:
        if kind in self._idle:
            with suppress(NeedsMore):
                return self._steps.run(Mode.PEEK, verb, kind=kind)
            self._idle.discard(kind)
        return None

    def _note(self, kind: object, *, idle: bool) -> None:
        if not idle:
            return
        if len(self._idle) >= MOST_IDLE:
            self._idle.clear()
        self._idle.add(kind)


_FINISH = Ask(FINISH_LIVE, of("held"))
MOST_GATED = 256
"""Workers whose last settlement needed an exclusive step, at most."""

Verdicts = list[list[Verdict]]
Finished = dict[tuple[str, int], list[str]]
"""The ids of jobs that just succeeded, by worker and run."""


class Settles:
    """Settlements: plain successes beside others, whatever touches gates or queues exclusively.

    Args:
        steps: on the connection that settles.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._gated: set[str] = set()

    def settle(self, requests: Sequence[SettleRequest]) -> tuple[Verdicts, Done]:
        """Settle several requests, all of them or none; see `Store.settle`."""
        workers = sorted({request.worker for request in requests})
        plain = [_plain_runs(request) for request in requests]
        kind = ("settle", *workers) if len(workers) == 1 else ("settle",)
        if None not in plain and not self._gated.intersection(workers):
            try:
                return self._run(Mode.SHARED, requests, workers, kind)
            except NeedsMore:
                if len(self._gated) >= MOST_GATED:
                    self._gated.clear()
                self._gated.update(workers)
        verdicts, done = self._run(Mode.EXCLUSIVE, requests, workers, kind)
        if None not in plain and not self._steps.session.alone:
            self._gated.difference_update(workers)
        return verdicts, done

    def _run(
        self, mode: Mode, requests: Sequence[SettleRequest], workers: Sequence[str], kind: object
    ) -> tuple[Verdicts, Done]:
        first: list[Asked] = [(LOAD_WORKER, (worker,)) for worker in workers]
        sent: list[tuple[str, int, list[str]]] = []
        for (worker, run), jobs in _finished(requests).items():
            who = self._steps.session.words.find(worker)
            if who is not None:
                sent.append((worker, run, jobs))
                bound = (ids_of(jobs), run, who, DEFAULT_POLICY.keep_ms, worker)
                first.append((_FINISH, bound))

        def take(answers: Sequence[Rows]) -> None:
            known = self._steps.session.cache.finished
            for (worker, run, jobs), rows in zip(sent, answers[len(workers) :], strict=True):
                known.update(((worker, run, job), None) for job in jobs)
                known.update(((worker, run, row[0]), row) for row in rows)

        def verb(ledger: PostgresLedger) -> Verdicts:
            verdicts = settle_all(ledger, requests)
            if any(ledger.session.cache.finished.values()):
                message = "jobs were ended ahead of a settlement that did not ask for it"
                raise InvariantBroken(message)
            return verdicts

        ahead = None
        if mode is Mode.EXCLUSIVE:
            gated = [one.job for request in requests for one in request.outcomes]
            ahead = look_of(requests)._replace(permits=gated)
        return self._steps.run(mode, verb, kind=kind, first=first, take=take, ahead=ahead)


def _finished(requests: Sequence[SettleRequest]) -> Finished:
    found: Finished = {}
    for request in requests:
        for job, run in _plain_runs(request) or ():
            found.setdefault((request.worker, run), []).append(job)
    return found


def _plain_runs(request: SettleRequest) -> list[tuple[str, int]] | None:
    """Return the runs of a request if all of them just succeeded, each job once."""
    runs: list[tuple[str, int]] = []
    for outcome in request.outcomes:
        if (
            type(outcome) is not Succeeded
            or outcome.result is not None
            or outcome.then
            or outcome.close
        ):
            return None
        runs.append((outcome.job, outcome.run))
    if not runs or len(runs) > MAX_BATCH or len({one for one, _ in runs}) < len(runs):
        return None
    return runs


_LATER = (None, Done(wrote=False, woken={}, told=False))


class Beats:
    """Beats, as far as they can be made beside exclusive steps: no other call delays a lease.

    A lease is one row, written only if it is still the one that was read. So a beat and an
    exclusive step that write the same worker cannot both commit.

    Args:
        steps: on the connection of beats.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def beat(self, request: BeatRequest) -> tuple[BeatReply | None, Done]:
        """See `Store.beat`.

        Returns:
            The reply, and what the step has done. The reply is None if the beat must be made again
            in an exclusive step, because jobs change; the lease is extended if it has not ended.
        """
        if request.leaving:
            return _LATER
        if not request.progress:
            with suppress(NeedsMore):
                return self._run(request)
        # If the lease has ended this is refused as well: what the worker held is lost.
        with suppress(NeedsMore):
            self._run(replace(request, progress=(), request=0))
        return _LATER

    def _run(self, request: BeatRequest) -> tuple[BeatReply, Done]:
        kind = ("beat", request.worker)
        return self._steps.run(Mode.BEAT, lambda ledger: verbs.beat(ledger, request), kind=kind)
