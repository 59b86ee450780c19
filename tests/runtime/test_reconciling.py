"""Which awaiting jobs a reconcile job may ask a provider about."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import headway as hw
from headway.contract.claims import ClaimRequest
from headway.contract.outcomes import HandedOver, SettleRequest
from headway.contract.signals import Decided, Signal
from headway.core.job import FollowUp, JobPolicy, NewJob, derived_id
from headway.runtime.job import Job
from headway.runtime.reconciliation import Awaited, reconcile
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from tests.runtime.claimed import NoContext, claimed

PHONED = NewJob(
    id=derived_id("reconciling", 1),
    kind="call",
    lane="calls",
    tenant="acme",
    policy=JobPolicy(cascade=True, on_accepted=FollowUp(kind="go")),
    candidates=("ann",),
)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """The job awaits an answer in its first run."""
    opened = MemoryStore(FakeClock())
    await opened.enqueue([PHONED])
    await opened.claim(ClaimRequest(worker="w", request=1, lanes=(("calls", 1),)))
    handed = HandedOver(PHONED.id, 1, key="sid", timeout_ms=60_000)
    await opened.settle(SettleRequest(worker="w", outcomes=(handed,)))
    yield opened
    await opened.close()


async def asked(
    store: MemoryStore, *, run: int = 1, lane: str = "calls", tenant: str = "acme"
) -> list[int]:
    """Run a reconcile job about the job, and return the runs that its handler was asked about."""
    runs: list[int] = []

    async def ask(awaited: Awaited) -> hw.Unknown:
        runs.append(awaited.run)
        return hw.Unknown()

    args = b'{"job": "%b", "run": %d}' % (PHONED.id.encode(), run)
    asking = claimed(1)._replace(kind="ask", lane=lane, tenant=tenant, args=args)
    await reconcile(Job(asking, NoContext()), store, ask, {})
    return runs


async def test_handler_is_asked_only_about_the_run_and_scope_of_its_job(store: MemoryStore) -> None:
    assert await asked(store) == [1]
    assert await asked(store, run=2) == []
    assert await asked(store, lane="others") == []
    assert await asked(store, tenant="umbrella") == []


async def test_handler_is_not_asked_about_an_accepted_offer(store: MemoryStore) -> None:
    await store.signal(Signal(key="sid", event="1", decided=Decided.ACCEPTED))
    assert await asked(store) == []
