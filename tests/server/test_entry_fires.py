"""When timetable entries fired last, as their listings show it."""

from __future__ import annotations

from headway.contract.claims import ClaimRequest
from headway.contract.definitions import DeclareEntry, DefineRequest, EntrySpec, FireRequest
from headway.contract.views import TimetableQuery
from headway.core.job import NewJob
from headway.core.timetable.schedule import Every
from headway.server.entry_fires import last_fires
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock


async def test_last_fire_before_an_outage_is_found() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    spec = EntrySpec(name="t", schedule=Every(1_000), job=NewJob(id="", kind="noop"))
    await store.define(DefineRequest(items=(DeclareEntry(spec=spec),), author="code"))
    at = clock() // 1_000 * 1_000 + 1_000
    await store.fire(FireRequest(entry="t", revision=1, moments=(at,), ahead_until=at))
    clock.advance(1_000)
    claim = ClaimRequest(worker="w" * 32, request=1, lanes=(("main", 1),), n=1, free=1)
    assert len((await store.claim(claim)).jobs) == 1
    clock.advance(3_600_000)
    entries = await store.read(TimetableQuery())
    assert await last_fires(store, entries, clock()) == {"t": at}
