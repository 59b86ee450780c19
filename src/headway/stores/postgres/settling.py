"""Settlements: plain successes beside others, whatever touches gates or queues with the turn."""

from __future__ import annotations

from collections.abc import Sequence

from headway.contract.outcomes import SettleRequest, Succeeded, Verdict
from headway.core.errors import InvariantBroken
from headway.core.job import DEFAULT_POLICY, MAX_BATCH
from headway.stores.ledger.verbs.settle import look_of, settle_all
from headway.stores.postgres.done import Done
from headway.stores.postgres.ledger import PostgresLedger
from headway.stores.postgres.mode import Mode, NeedsMore
from headway.stores.postgres.statement import Ask, Asked, Rows, of
from headway.stores.postgres.steps import Steps
from headway.stores.postgres.tables.ids import ids_of
from headway.stores.postgres.tables.jobs.starting import FINISH_LIVE
from headway.stores.postgres.tables.workers import LOAD

_FINISH = Ask(FINISH_LIVE, of("held"))
MOST_GATED = 256
"""Workers of which it is known that the last settlement needed the turn."""

Verdicts = list[list[Verdict]]
Finished = dict[tuple[str, int], list[str]]
"""The ids of jobs that just succeeded, by worker and run."""


class Settles:
    """The settlements of one process.

    Args:
        steps: on the connection that settles.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._gated: set[str] = set()

    def settle(self, requests: Sequence[SettleRequest]) -> tuple[Verdicts, Done]:
        """Settle what callers ask for, all of it or nothing; see `Store.settle`."""
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
        verdicts, done = self._run(Mode.TURN, requests, workers, kind)
        if None not in plain and not self._steps.session.alone:
            self._gated.difference_update(workers)
        return verdicts, done

    def settle_one(self, request: SettleRequest) -> tuple[list[Verdict], Done]:
        """Settle what one caller asks for."""
        (verdicts,), done = self.settle((request,))
        return verdicts, done

    def _run(
        self, mode: Mode, requests: Sequence[SettleRequest], workers: Sequence[str], kind: object
    ) -> tuple[Verdicts, Done]:
        first: list[Asked] = [(LOAD, (worker,)) for worker in workers]
        sent: list[tuple[str, int, list[str]]] = []
        for (worker, run), jobs in _finished(requests).items():
            who = self._steps.session.words.find(worker)
            if who is not None:
                sent.append((worker, run, jobs))
                bound = (ids_of(jobs), run, who, DEFAULT_POLICY.keep_ms, worker)
                first.append((_FINISH, bound))

        def told(answers: Sequence[Rows]) -> None:
            known = self._steps.session.finished
            for (worker, run, jobs), rows in zip(sent, answers[len(workers) :], strict=True):
                known.update(((worker, run, job), None) for job in jobs)
                known.update(((worker, run, row[0]), row) for row in rows)

        def verb(ledger: PostgresLedger) -> Verdicts:
            verdicts = settle_all(ledger, requests)
            if any(ledger.session.finished.values()):
                message = "jobs were ended ahead of a settlement that did not ask for it"
                raise InvariantBroken(message)
            return verdicts

        ahead = None
        if mode is Mode.TURN:
            gated = [one.job for request in requests for one in request.outcomes]
            ahead = look_of(requests)._replace(permits=gated)
        return self._steps.run(mode, verb, kind=kind, first=first, told=told, ahead=ahead)


def _finished(requests: Sequence[SettleRequest]) -> Finished:
    found: Finished = {}
    for request in requests:
        for job, run in _plain_runs(request) or ():
            found.setdefault((request.worker, run), []).append(job)
    return found


def _plain_runs(request: SettleRequest) -> list[tuple[str, int]] | None:
    """The runs of a request, if all of them just succeeded, each job once."""
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
