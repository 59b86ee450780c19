"""The calls made by one operation are counted on every store, and are no more than they were."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import headway as hw
from bench import paths
from bench.paths import STORES, Calls, measure
from headway.runtime.timing import pause

PACKAGE = Path(hw.__file__).parent
SENDING = {"SQLite": "sqlite/writer", "PostgreSQL": "postgres/session", "Redis": "redis/link"}
"""The functions that send statements or scripts; the first two on a thread of their own."""
MOST = {
    "SQLite": {"send": 109, "claim": 157, "settle": 70},
    "PostgreSQL": {"send": 145, "claim": 99, "settle": 66},
    "Redis": {"send": 55, "claim": 37, "settle": 32},
}
"""One or two more than were counted when this was written. A change that needs more changes this
table, and that of decision 0054."""


@pytest.mark.parametrize("store", STORES)
async def test_operation_on_each_store_makes_no_more_calls_than_before(store: str) -> None:
    with STORES[store]() as (place, _):
        found = await measure(place.url)
    assert [*found] == ["send", "claim", "settle"]
    for seen in found.values():
        assert all((PACKAGE / file.removeprefix("/")).is_file() for file in seen)
        assert f"/stores/{SENDING[store]}.py" in seen
    assert "/runtime/app.py" in found["send"]
    assert "/runtime/app.py" not in found["settle"]
    made = {operation: seen.total() for operation, seen in found.items()}
    assert {name: calls for name, calls in made.items() if calls > MOST[store][name]} == {}


async def test_each_call_is_counted_once_with_those_that_follow_its_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paths, "PACKAGE", __file__)
    loop = asyncio.get_running_loop()

    def follow() -> None:
        return

    def serve(replied: asyncio.Event, released: threading.Event) -> None:
        loop.call_soon_threadsafe(replied.set)
        released.wait(10)
        follow()

    async def operation() -> None:
        replied, released = asyncio.Event(), threading.Event()
        threading.Thread(target=serve, args=(replied, released)).start()
        await replied.wait()
        for _ in range(3):
            await pause(0)
        # By then the caller has its reply, and could start the next operation.
        loop.call_soon(released.set)

    calls = Calls()
    with calls.watching():
        for _ in range(3):
            _, seen = await calls.counted(operation())
            # `operation`, `serve`, `follow`, and this function, which resumes.
            assert seen.total() == 4
