"""A shut gate remembers a bounded number of the lanes that it turned away, and forgets them."""

from __future__ import annotations

import pytest

from headway.contract.extensions import Movable
from headway.contract.outcomes import Succeeded
from headway.core.gates.slots import Slots
from headway.stores import open_store
from headway.stores.ledger.gaterows import ANY_LANE, MOST_LANES
from headway.stores.ledger.verbs.moving import decode
from headway.testing.clock import FakeClock
from headway.testing.conformance.rig import Rig
from headway.testing.jobs import use_of
from tests.servers.stores import EVERYWHERE, NewUrl

LINE = Slots("line", 1)


async def remembered(rig: Rig) -> tuple[str, ...]:
    """Return the lanes that the gate remembers."""
    assert isinstance(rig.store, Movable)
    cursor = None
    while True:
        chunk = await rig.store.export_chunk(cursor)
        if chunk.part == "gates":
            for one in decode(chunk):
                if one.row.name == LINE.name:
                    return tuple(one.row.lanes)
        cursor = chunk.cursor
        if cursor is None:
            return ()


@pytest.mark.parametrize("kind", EVERYWHERE)
async def test_closed_gate_remembers_few_lanes_and_forgets_them_when_it_has_room(
    new_url: NewUrl, kind: str
) -> None:
    clock = FakeClock()
    rig = Rig(open_store(new_url(kind), clock=clock), clock)
    await rig.declare(LINE)
    await rig.add_many(2, gates=(use_of(LINE),))
    lanes = [f"lane-{number}" for number in range(MOST_LANES + 2)]
    for lane in lanes:
        await rig.add(lane=lane, gates=(use_of(LINE),))
    worker = rig.new_worker()
    run = await worker.take_one()
    for place, lane in enumerate(lanes, start=1):
        assert await worker.take(1, lane) == []
        if place in {1, MOST_LANES}:
            assert await remembered(rig) == tuple(lanes[:place])
    assert await remembered(rig) == (ANY_LANE,)
    await worker.report(Succeeded(run.id, run.run))
    assert await remembered(rig) == ()
    await worker.take_one()
    assert await worker.take(1, "lane-3") == []
    assert await remembered(rig) == ("lane-3",)
    await rig.store.close()
