"""A thousand long polls over real connections."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from headway.contract.definitions import Role
from tests.server.long_polling.rig import Counted, job, until
from tests.server.rig import Rig, serving

POLLS = 1_000


class Poll:
    """A long poll on a connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> dict[str, Any]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().splitlines()
            if line.startswith(b"content-length")
        )
        return json.loads(await self.reader.readexactly(length))


async def polling(rig: Rig, worker: str) -> Poll:
    at = urlsplit(rig.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    body = json.dumps({"worker": worker, "lanes": "calls", "wait": "60s"})
    writer.write(
        f"POST /v1/claims HTTP/1.1\r\nHost: {at.netloc}\r\n"
        f"Authorization: Bearer {rig.tokens[Role.WORKER]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    await writer.drain()
    return Poll(reader, writer)


@pytest.fixture
def many_files() -> None:
    """Raise the limit on open files: both ends of each connection are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 3 * POLLS
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, max(hard, needed)))


@pytest.fixture
async def rig(tmp_path: Any, many_files: None) -> AsyncIterator[Rig]:
    async with serving(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal") as rig:
        yield rig


@pytest.mark.slow
async def test_thousand_polls_cost_one_claim_and_each_gets_one_job_in_order_of_arrival(
    rig: Rig,
) -> None:
    registry = rig.service.long_polls
    counted = Counted(rig.store)
    registry._store = registry._claiming._store = counted  # type: ignore[assignment]  (it counts calls)
    polls = []
    for number in range(POLLS):
        polls.append(await polling(rig, f"w{number:04}"))
        if number % 50 == 0:
            await until(lambda wanted=number + 1: len(registry) == wanted)
    await until(lambda: len(registry) == POLLS)
    # The first poll claimed, and once more when others could wake it; those behind it never did.
    assert counted.calls["claim"] <= 3
    assert counted.open["wait"] == 1
    await rig.store.enqueue([job(number, due_at=number + 1) for number in range(POLLS)])
    answers = [await poll.answer() for poll in polls]
    ids = [one["id"] for answer in answers for one in answer["jobs"]]
    wanted = [job(number).id for number in range(POLLS)]
    assert sorted(ids) == sorted(wanted)
    # A few claim at the same time, so neighbours may swap places, but no others.
    places = {one: place for place, one in enumerate(wanted)}
    assert all(abs(places[one] - place) < 32 for place, one in enumerate(ids))
    assert counted.calls["claim"] <= POLLS + 32
    for poll in polls:
        poll.writer.close()
    await until(lambda: len(registry) == 0)
