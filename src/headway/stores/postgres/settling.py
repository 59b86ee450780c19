"""Settlements: plain successes beside others, whatever touches gates or queues with the turn."""

from __future__ import annotations

from collections.abc import Sequence

from headway.contract.outcomes import SettleRequest, Succeeded, Verdict
from headway.core.errors import InvariantBroken
from headway.core.job import DEFAULT_POLICY, MAX_BATCH
from headway.stores.ledger.verbs import settle
from headway.stores.postgres.done import Done
from headway.stores.postgres.ledger import PostgresLedger
from headway.stores.postgres.mode import Mode, NeedsMore
from headway.stores.postgres.statement import Ask, Asked, Rows, of
from headway.stores.postgres.steps import Steps
from headway.stores.postgres.tables.ids import ids_of
from headway.stores.postgres.tables.jobs.starting import FINISH_LIVE
from headway.stores.postgres.tables.permits import OF_JOBS
from headway.stores.postgres.tables.workers import LOAD

_FINISH = Ask(FINISH_LIVE, of("held"))
MOST_GATED = 256
"""Workers of which it is known that the last settlement needed the turn."""


class Settles:
    """The settlements of one process.

    Args:
        steps: on the connection that settles.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._gated: set[str] = set()

    def settle(self, request: SettleRequest) -> tuple[list[Verdict], Done]:
        """See `Store.settle`."""
        first = self._first(request)

        def told(answers: Sequence[Rows]) -> None:
            if len(answers) > 1:
                self._steps.session.finished = answers[1]

        def verb(ledger: PostgresLedger) -> list[Verdict]:
            verdicts = settle(ledger, request)
            if ledger.session.finished:
                message = "jobs were ended ahead of a settlement that did not ask for it"
                raise InvariantBroken(message)
            return verdicts

        kind = ("settle", request.worker)
        if request.worker not in self._gated:
            try:
                return self._steps.run(Mode.SHARED, verb, kind=kind, first=first, told=told)
            except NeedsMore:
                if len(self._gated) >= MOST_GATED:
                    self._gated.clear()
                self._gated.add(request.worker)
                first = self._first(request)
        verdicts, done = self._steps.run(Mode.TURN, verb, kind=kind, first=first, told=told)
        if not self._steps.session.alone:
            self._gated.discard(request.worker)
        return verdicts, done

    def _first(self, request: SettleRequest) -> list[Asked]:
        first: list[Asked] = [(LOAD, (request.worker,))]
        runs = _plain_runs(request)
        if runs is not None and len({run for _, run in runs}) == 1:
            who = self._steps.session.words.find(request.worker)
            if who is not None:
                ids = ids_of(one for one, _ in runs)
                bound = (ids, runs[0][1], who, DEFAULT_POLICY.keep_ms, request.worker)
                first.append((_FINISH, bound))
                if request.worker in self._gated:
                    first.append((OF_JOBS, (ids,)))
        return first


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
