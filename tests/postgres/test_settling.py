"""Settlements of successes: in one trip, in a shared or an exclusive step; fenced in each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.contract.claims import BeatRequest
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.outcomes import Failed, Outcome, Released, SettleRequest, Succeeded, Verdict
from headway.contract.views import GatesQuery, JobQuery, StatsQuery
from headway.core.gates.slots import Slots
from headway.core.job import FollowUp, JobPolicy
from headway.core.state import State
from headway.stores.postgres.store import PostgresStore
from headway.testing.clock import FakeClock
from headway.testing.jobs import use_of
from tests.plain_jobs import assert_clean, claim, job, jobs
from tests.postgres.places import Place

LINE = Slots("line", 3)
LEASE_MS = 30_000


async def settle(store: PostgresStore, *outcomes: Outcome, worker: str = "w") -> list[Verdict]:
    return await store.settle(SettleRequest(worker=worker, outcomes=outcomes))


def _exclusively(store: PostgresStore, worker: str) -> None:
    """Make the worker's next settlement exclusive, as after one that needed an exclusive step."""
    store._settles._gated.add(worker)


WAYS: dict[str, Callable[[PostgresStore, str], None]] = {
    "in one trip": lambda _store, _worker: None,
    "exclusively": _exclusively,
}
# Sender, run and delay of a settlement of the job that worker w holds as run 2.
FORGERIES = {
    "earlier run": ("w", 1, 0),
    "later run": ("w", 3, 0),
    "other worker": ("other", 2, 0),
    "lease that has ended": ("w", 2, LEASE_MS),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("with_another", ["alone", "behind a success", "behind a failure"])
@pytest.mark.parametrize("forged", FORGERIES)
async def test_success_of_a_run_that_is_not_live_is_refused_and_changes_nothing(
    place: Place, clock: FakeClock, forged: str, with_another: str, way: str
) -> None:
    store = place.open(clock)
    sender, run, after_ms = FORGERIES[forged]
    await store.enqueue(jobs(0, 1))
    (first,) = (await claim(store)).jobs
    await settle(store, Released(first.id, first.run))
    (held,) = (await claim(store, request=2)).jobs
    assert (held.id, held.run) == (first.id, 2)
    await store.enqueue(jobs(1, 2))
    own = (await claim(store, sender, request=3)).jobs
    for one in own:
        await settle(store, Released(one.id, one.run), worker=sender)
    # With the forged run's number if possible: outcomes of equal runs share one statement.
    own = (await claim(store, sender, request=4)).jobs
    clock.advance(after_ms)
    before = await store.read(JobQuery(id=held.id)), await store.read(StatsQuery())
    WAYS[way](store, sender)
    outcomes: list[Outcome] = [Succeeded(held.id, run)]
    if with_another == "behind a success":
        outcomes.insert(0, Succeeded(own[0].id, own[0].run))
    elif with_another == "behind a failure":
        outcomes.insert(0, Failed(own[0].id, own[0].run, error="no"))
    *others, verdict = await settle(store, *outcomes, worker=sender)
    assert verdict is (Verdict.ALREADY if run == 1 else Verdict.LOST)
    assert others == [Verdict.LOST if after_ms else Verdict.DONE] * len(others)
    assert await store.read(JobQuery(id=held.id)) == before[0]
    if with_another == "alone":
        assert (await store.read(StatsQuery())).counts == before[1].counts
    await assert_clean(store)


@pytest.mark.parametrize("way", WAYS)
async def test_success_releases_its_permits_and_creates_its_follow_ups(
    place: Place, clock: FakeClock, way: str
) -> None:
    store = place.open(clock)
    await store.define(DefineRequest(items=(DeclareGate(spec=LINE),), author="ann"))
    ended = (State.SUCCEEDED,)
    alert = JobPolicy(on_final=FollowUp(kind="alert", lane="alerts", states=ended))
    await store.enqueue([job(0), job(1, gates=(use_of(LINE),)), job(2, policy=alert)])
    runs = (await claim(store)).jobs
    assert len(await _holders(store)) == 1
    # Settlements of a worker decide how its next one is made; here each one counts as its first.
    for one in runs:
        WAYS[way](store, "w")
        assert await settle(store, Succeeded(one.id, one.run)) == [Verdict.DONE]
        store._settles._gated.clear()
    assert await _holders(store) == []
    counts = (await store.read(StatsQuery())).counts
    assert (counts["succeeded"], counts["waiting"]) == (3, 1)
    await assert_clean(store)


async def _holders(store: PostgresStore) -> list[str]:
    states = (await store.read(GatesQuery())).rows
    return [holder.job for state in states for holder in state.holders]


async def test_plain_success_is_one_trip(place: Place, clock: FakeClock) -> None:
    store = place.open(clock)
    await store.enqueue(jobs(0, 2))
    first, second = (await claim(store)).jobs
    await settle(store, Succeeded(first.id, first.run))
    links = [steps.session.link for steps in (store._settles._steps, store._turns)]
    before = [link.trips for link in links]
    await store.beat(BeatRequest(worker="w", running=((second.id, second.run),)))
    await settle(store, Succeeded(second.id, second.run))
    assert [link.trips - n for link, n in zip(links, before, strict=True)] == [1, 0]
