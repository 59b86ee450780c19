"""The judge of the rig over HTTP detects every kind of violation it should."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.contract.claims import ClaimRequest
from headway.contract.outcomes import SettleRequest, Succeeded
from headway.core.job import NewJob
from headway.stores import open_store
from tests.torture.over_http import Seen, judge

ONE, OTHER = "01a1fd5c-3534-7364-bb2d-381e7c2d9c63", "01a1fd5c-3534-7364-bb2d-381e7c2d9c64"


async def one_done(url: str) -> Seen:
    """Create a store with a job that was done once, and the clients' observations of it."""
    store = open_store(url)
    await store.enqueue([NewJob(id=ONE, kind="write")])
    await store.claim(ClaimRequest(worker="w", request=1, lanes=(("main", 1),)))
    await store.settle(SettleRequest(worker="w", outcomes=(Succeeded(ONE, 1),)))
    await store.close()
    seen = Seen(sent={ONE}, acked={ONE}, effects={ONE: [1]})
    seen.done[ONE] = 1
    return seen


def _lose(seen: Seen) -> None:
    seen.sent.add(OTHER)
    seen.acked.add(OTHER)


def _send_nothing(seen: Seen) -> None:
    seen.sent.clear()
    seen.acked.clear()


def _do_twice(seen: Seen) -> None:
    seen.effects[ONE] = [1, 1]


def _do_never(seen: Seen) -> None:
    seen.effects.clear()


def _run_ahead(seen: Seen) -> None:
    seen.effects[ONE] = [1, 2]


def _settle_twice(seen: Seen) -> None:
    seen.done[ONE] = 2


async def test_correct_history_is_no_violation(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/headway.db"
    assert await judge(url, await one_done(url)) == []


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (_lose, "lost"),
        (_send_nothing, "from nowhere"),
        (_do_twice, "one run handed out twice"),
        (_do_never, "never done"),
        (_run_ahead, "a run that the store does not know"),
        (_settle_twice, "settled twice"),
    ],
)
async def test_each_planted_fault_is_found(
    tmp_path: Path, plant: Callable[[Seen], None], rule: str
):
    url = f"sqlite:///{tmp_path}/headway.db"
    seen = await one_done(url)
    plant(seen)
    assert rule in {one.rule for one in await judge(url, seen)}


async def test_unsettled_job_is_found(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/headway.db"
    store = open_store(url)
    await store.enqueue([NewJob(id=ONE, kind="write")])
    await store.close()
    found = await judge(url, Seen(sent={ONE}, acked={ONE}, effects={ONE: [1]}))
    assert "not settled" in {one.rule for one in found}
