"""Random commands on PostgreSQL and on memory: equal replies, equal dumps, clean audits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import cast
from unittest.mock import patch
from uuid import uuid4

import psycopg
import pytest
from hypothesis.stateful import initialize, precondition, rule

from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.definitions import DefineRequest, OpenGate, ResetGate, ResetLane
from headway.contract.outcomes import SettleRequest, Succeeded, Verdict
from headway.contract.store import Clock, Store
from headway.core.job import NewJob
from headway.stores import open_store
from headway.stores.postgres.plain_claims import PlainClaims
from headway.stores.postgres.store import PostgresStore
from tests.conformance.plain_first import Counted, PlainFirstStore
from tests.depth import DEPTH
from tests.machine.drawing import IMPLICIT, LANES, WORKERS
from tests.machine.machine import DICE, LONG, StoresMachine
from tests.scale.trips import at_once
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database


class PostgresMachine(StoresMachine):
    """Memory and a namespace of a database."""

    store_name = "PostgreSQL"
    url: str

    def open(self, clock: Clock) -> Store:
        self.namespace = f"machine_{uuid4().hex}"
        mark = "&" if "?" in self.url else "?"
        return open_store(f"{self.url}{mark}namespace={self.namespace}", clock=clock)

    def forget(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {self.namespace} CASCADE".encode())

    @precondition(lambda self: self.runs)
    @rule(dice=DICE)
    def succeed_and_claim(self, dice: Random) -> None:
        """Settle and claim at once: in one step on PostgreSQL, one after the other on memory."""
        worker, _, _ = self.any_run(dice)
        mine = [run for run in self.runs[-20:] if run[0] == worker]
        # Two runs of one job are not a plain settlement; they would be settled after the claim.
        by_job = {job: (worker, job, run) for _, job, run in dice.choices(mine, k=4)}
        chosen = list(by_job.values())
        self.runs = [run for run in self.runs if run not in chosen]
        settle = SettleRequest(
            worker=worker, outcomes=tuple(Succeeded(job, run) for _, job, run in chosen)
        )
        self.requests[worker] += 1
        claim = ClaimRequest(
            worker=worker,
            request=self.requests[worker],
            lanes=dice.choice([(("x", 1),), (("y", 1),)]),
            n=dice.choice([1, 9]),
            free=9,
            lease_ms=30_000,
        )
        found = self.pair.ask(lambda store: settle_and_claim(store, settle, claim))
        if isinstance(found, tuple):
            self.runs += [(worker, job.id, job.run) for job in found[1].jobs]
        self.checked()


async def settle_and_claim(
    store: Store, settle: SettleRequest, claim: ClaimRequest
) -> tuple[list[Verdict], ClaimReply]:
    if isinstance(store, PostgresStore):
        with (
            patch.object(PlainClaims, "may_claim", return_value=False),
            patch.object(store._settles, "beside", return_value=False),
        ):
            # The settlement is executed first, in whatever order the calls are made.
            calls = store.claim(claim), store.settle(settle)
            reply, verdicts = await at_once(store._turn_queue, calls)
    else:
        verdicts, reply = await store.settle(settle), await store.claim(claim)
    return verdicts, replace(reply, after={}, seen=0)


PLAIN_CLAIMS, PLAIN_STARTS = 200, 20
"""Minimum numbers of plain claims, and of jobs that they start, in all histories of plain lanes."""
FIRST_CLAIMS = 20
"""Claims at the start of each of these histories."""


class PlainPostgresMachine(PostgresMachine):
    """Memory and a namespace whose lanes are mostly plain."""

    counted = Counted()

    def open(self, clock: Clock) -> Store:
        return cast("Store", PlainFirstStore(super().open(clock), self.counted, greets=False))

    @initialize(dice=DICE)
    def declare_and_fill(self, dice: Random) -> None:
        super().declare_and_fill(dice)
        # Which rules a history plays, and how often, depends on the constants of all modules that
        # Hypothesis has seen imported: without these, a run may have few claims.
        for _ in range(FIRST_CLAIMS):
            self.claim(dice, dice.choice(WORKERS))

    def new_jobs(self, dice: Random, most: int) -> list[NewJob]:
        made = super().new_jobs(dice, most)
        return [job if dice.random() < 0.02 else _ungated(job) for job in made]

    def define(self, dice: Random) -> None:
        if dice.random() < 0.1:
            super().define(dice)
            return
        # Anything closed or capped is soon reopened.
        items = (
            *(OpenGate(name=gate) for gate in IMPLICIT),
            *(ResetGate(name=gate) for gate in IMPLICIT),
            *(ResetLane(name=lane) for lane in LANES),
        )
        self.pair.ask(lambda store: store.define(DefineRequest(items=items, author="ann")))
        self.checked()


def _ungated(job: NewJob) -> NewJob:
    return job.changed(gates=(), candidates=(), policy=replace(job.policy, cascade=False))


@pytest.fixture(scope="module", autouse=True)
def serve(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[None]:
    with fresh_database(fast_postgres_server.url) as url:
        PostgresMachine.url = url
        yield


@pytest.mark.slow
@pytest.mark.timeout(3600 * DEPTH)
class TestPostgresEqualsMemoryInLongHistories(PostgresMachine.TestCase):
    settings = LONG


@pytest.mark.slow
@pytest.mark.timeout(3600 * DEPTH)
class TestPlainPostgresEqualsMemoryInLongHistories(PlainPostgresMachine.TestCase):
    settings = LONG

    @classmethod
    def tearDownClass(cls) -> None:
        super().tearDownClass()
        counted = PlainPostgresMachine.counted
        assert counted.claims >= PLAIN_CLAIMS
        assert counted.started >= PLAIN_STARTS
