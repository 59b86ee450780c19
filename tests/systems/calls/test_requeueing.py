"""Waiting leads are examined; other jobs are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from headway.stores import open_store
from headway.systems.calls.requeueing import requeue
from headway.testing.clock import FakeClock
from headway.testing.jobs import JobFactory
from tests.web.test_web_live import Counted


async def test_store_without_waiting_leads_is_asked_only_for_the_counts_of_their_lane():
    inner = open_store("memory://")
    jobs = JobFactory(FakeClock())
    await inner.enqueue([jobs.make(lane="others") for _ in range(3)])
    store = Counted(inner)

    async def read() -> None:
        """No templates."""

    context = SimpleNamespace(
        store=store, kind=SimpleNamespace(lane="calls"), catalogue=SimpleNamespace(read=read)
    )
    assert await requeue(cast("Any", context)) == 0
    assert store.reads == {"LanesQuery": 1}
    await inner.close()
