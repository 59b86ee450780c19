"""A burst of webhooks does not cost a healthy worker its lease."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import headway as hw
from headway.contract.definitions import Role
from headway.runtime.timing import REAL
from headway.stores.sqlite import SqliteStore
from headway.testing.clock import START_AT
from tests.server.hooks.awaiting_jobs import applied, awaiting
from tests.server.hooks.senders import SECRET, from_standard
from tests.server.rig import serving
from tests.sqlite.rig import door_shut, one_turn, options

WEBHOOKS = 3_000
LEASE_MS = 2_000
TIMEOUT_S = 300
"""Generous, for a busy machine; no result depends on how long a request takes."""


class WorkClock:
    """A clock that advances by 1 ms on each read: once for each store operation."""

    at = START_AT

    def __call__(self) -> int:
        self.at += 1
        return self.at


async def webhook(url: str, number: int) -> bytes:
    """Send a webhook on a connection of its own; return the reply's status."""
    data = {"key": "order 7", "note": "SEEN"}
    said = {"type": "headway.signal", "timestamp": "2026-01-01T00:00:00Z", "data": data}
    sent = from_standard(url, said, own=f"m{number}", now=REAL.wall_at())
    place = urlsplit(url)
    lines = [f"POST {place.path} HTTP/1.1", f"Host: {place.netloc}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in sent.headers]
    lines += [f"Content-Length: {len(sent.body)}", "", ""]
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write("\r\n".join(lines).encode() + sent.body)
    status = (await reader.readline()).split()[1]
    writer.close()
    await writer.wait_closed()
    return status


@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT_S)
async def test_worker_keeps_its_lease_though_more_webhooks_wait_than_fit_into_it(
    tmp_path: Path,
) -> None:
    path, clock = tmp_path / "headway.db", WorkClock()
    store = SqliteStore(options(path, patience_ms=300_000), clock)
    hooks = {"standard": {"payments": {"keys": [SECRET]}}}
    async with serving(app=hw.App(store=store), hooks=hooks) as rig:
        rig.http.timeout = TIMEOUT_S
        await awaiting(store, "order 7")
        job = await rig.send(lane="work")
        body = {"worker": "w", "lanes": "work", "lease": LEASE_MS}
        claimed = (await rig.call(Role.WORKER, "POST", "/v1/claims", body)).json()
        run = {"job": job, "run": claimed["jobs"][0]["run"]}

        queue = store._writer.queue
        with door_shut(path):
            waiting = [
                asyncio.create_task(webhook(f"{rig.url}/hooks/payments", number))
                for number in range(WEBHOOKS)
            ]
            while len(queue._calls) < WEBHOOKS:
                await one_turn()
            before = clock.at
            lease = {"worker": "w", "running": [run], "lease": LEASE_MS}
            beating = asyncio.create_task(rig.call(Role.WORKER, "POST", "/v1/leases", lease))
            while not queue._urgent:
                await one_turn()
        beat = (await beating).json()
        assert beat["lost"] == []
        assert beat["now"] - before <= 20
        assert set(await asyncio.gather(*waiting)) == {b"204"}
        assert clock.at - before > LEASE_MS
        assert (await applied(store))[0] == WEBHOOKS
    await store.close()
