"""Any name is treated as a name: every store accepts, refuses and distinguishes names alike."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from headway.contract.definitions import Role
from tests.server.rig import Rig, serving
from tests.servers.stores import DURABLE, NewUrl

_DRAWN = random.Random(7)
NAMES = (
    "'; DROP TABLE jobs; --",
    '"quoted"',
    "semi;colon",
    "{hash}tag",
    "{}",
    "a:b",
    "a:b:c",
    "lane:a",
    "all",
    "*",
    "a*",
    "a?",
    "[a-z]",
    "a",
    "A",
    "a ",
    " a",
    "a/b",
    "a//b",
    "/",
    "..",
    "../a",
    ".",
    "%2F",
    "%00",
    "a%",
    "_",
    "a_b",
    "a\\b",
    "\\x00",
    "$1",
    "%s",
    "line\nbreak",
    "tab\there",
    "\x01\x1f\x7f",
    "\u202egnp.exe",
    "\u200b",
    "e\u0301",
    "\xe9",
    "\U0001f469\u200d\U0001f680",
    "\uffff",
    "\U0010ffff",
    "<script>alert(1)</script>",
    "pause",
    "a/pause",
    # The longest names allowed, of incompressible text.
    "".join(_DRAWN.choices("abcdefghijklmnopqrstuvwxyz", k=512)),
    "".join(chr(_DRAWN.randrange(0x4E00, 0x9FFF)) for _ in range(512)),
    "".join(chr(_DRAWN.randrange(0x20000, 0x2A6DF)) for _ in range(512)),
)
REFUSED = ("", "\0", "a\0b", "a" * 513, "\U0001f680" * 513, "x" * 65_536)

Transcript = list[tuple[str, str, int, str]]


def in_path(name: str) -> str:
    """Return a name as a path segment; every byte is escaped, or clients would normalise it."""
    return "".join(f"%{byte:02X}" for byte in name[:600].encode())


class Recorder:
    """Calls a server and records its replies."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.transcript: Transcript = []

    async def call(
        self, name: str, method: str, path: str, body: Any = None, **more: Any
    ) -> httpx.Response:
        reply = await self.rig.call(Role.ADMIN, method, path, body, **more)
        said: dict[str, Any] = reply.json()
        code = str(said.get("code", ""))
        where = path.replace(in_path(name) or "?", "NAME")
        self.transcript.append((name[:40], f"{method} {where}", reply.status_code, code))
        assert reply.status_code < 500, (method, path[:200], reply.text[:400])
        return reply


async def record(rig: Rig, name: str) -> Transcript:
    """Use a name for everything that has a name."""
    told = Recorder(rig)
    path = in_path(name)
    job = {
        "lane": name,
        "tenant": name,
        "kind": name,
        "subject": name,
        "key": name,
        "args": {name: name},
    }
    sent = await told.call(name, "POST", "/v1/jobs", job)
    for args in (job["args"], {}):
        await told.call(name, "POST", "/v1/jobs", {**job, "args": args})
    for one in ("lane", "tenant", "kind"):
        found = await told.call(name, "GET", "/v1/jobs", params={one: name[:600]})
        if sent.status_code == 201:
            assert [row["id"] for row in found.json()["rows"]] == [sent.json()["id"]], one
            assert found.json()["rows"][0]["args"] == {name: name}
    for one in ("key", "subject"):
        found = await told.call(
            name, "GET", "/v1/jobs", params={one: name[:600], "tenant": name[:600]}
        )
        if sent.status_code == 201:
            assert [row["id"] for row in found.json()["rows"]] == [sent.json()["id"]], one
    await told.call(name, "PUT", f"/v1/gates/{path}", {"kind": "slots", "capacity": 1})
    await told.call(name, "GET", f"/v1/gates/{path}")
    gated = {"kind": "gated", "lane": f"gated {name}"[:512], "gates": [name], "key": name}
    await told.call(name, "POST", "/v1/jobs", gated)
    await told.call(name, "PATCH", f"/v1/gates/{path}", {"capacity": 3, "reason": name[:400]})
    await told.call(name, "POST", "/v1/closures", {"gate": name, "after": "1h", "reason": "x"})
    await told.call(name, "DELETE", f"/v1/closures/{path}")
    await told.call(name, "PUT", f"/v1/lanes/{path}", {"concurrency": 5})
    lane = await told.call(name, "GET", f"/v1/lanes/{path}")
    if sent.status_code == 201:
        assert lane.status_code == 200, (name, lane.text)
        assert (lane.json()["name"], lane.json()["spec"]["concurrency"]) == (name, 5)
        assert sum(lane.json()["counts"].values()) == 1
    await told.call(name, "POST", f"/v1/lanes/{path}/pause", {"after": "1h"})
    await told.call(name, "POST", f"/v1/lanes/{path}/resume")
    entry = {"schedule": "@daily", "kind": "noop", "lane": "timed"}
    await told.call(name, "PUT", f"/v1/timetable/{path}", entry)
    await told.call(name, "GET", f"/v1/timetable/{path}")
    await told.call(name, "DELETE", f"/v1/timetable/{path}")
    await told.call(name, "POST", "/v1/tokens", {"name": name, "roles": ["viewer"]})
    await told.call(name, "GET", "/v1/trail", params={"target": name[:600]})
    await told.call(name, "POST", "/v1/moves", {"verb": "run_now", "filter": {"lane": name}})
    for _ in range(2):
        signal = {"event": name[:512], "note": name[:512]}
        await told.call(name, "POST", f"/v1/signals/{path}", signal)
    await told.call(name, "POST", "/v1/leases", {"worker": name, "lanes": [name], "name": name})
    return told.transcript


async def work(rig: Rig, name: str) -> Transcript:
    """Do the one job of a lane, as a worker of that name; a pattern would match other lanes."""
    told = Recorder(rig)
    if {*"*?["} & {*name}:
        return told.transcript
    worker = name[:400]
    claim = {"worker": worker, "lanes": [name], "max": 100}
    claimed = await told.call(name, "POST", "/v1/claims", claim)
    jobs = claimed.json()["jobs"]
    assert [job["lane"] for job in jobs] == [name]
    said = {"job": jobs[0]["id"], "run": jobs[0]["run"], "outcome": "handed_over", "key": name}
    settled = {"worker": worker, "outcomes": [{**said, "timeout": "1h"}]}
    await told.call(name, "POST", "/v1/settlements", settled)
    final = {"event": "end", "final": "succeeded", "body": {name: name}}
    await told.call(name, "POST", f"/v1/signals/{in_path(name)}", final)
    job = await rig.ask(Role.ADMIN, f"/v1/jobs/{jobs[0]['id']}")
    assert job["state"] == "succeeded"
    return told.transcript


@asynccontextmanager
async def both(url: str) -> AsyncGenerator[tuple[Rig, Rig]]:
    """Run a server on a store, and one on the reference store."""
    async with serving(url) as rig, serving() as reference:
        yield rig, reference


@pytest.fixture(params=DURABLE)
def url(request: pytest.FixtureRequest, new_url: NewUrl) -> str:
    return new_url(request.param)


@pytest.mark.slow
async def test_every_name_means_the_same_on_every_store_and_no_other(url: str) -> None:
    async with both(url) as (rig, reference):
        for name in (*NAMES, *REFUSED):
            assert await record(rig, name) == await record(reference, name)
        for name in NAMES:
            assert await work(rig, name) == await work(reference, name)
        for path in ("/v1/lanes", "/v1/gates", "/v1/jobs", "/v1/audit"):
            here = await rig.ask(Role.ADMIN, path, limit=1000)
            there = await reference.ask(Role.ADMIN, path, limit=1000)
            if path == "/v1/audit":
                assert here["differences"] == there["differences"] == []
            elif path == "/v1/jobs":
                assert len(here["rows"]) == len(there["rows"])
            else:
                names = [[row["name"] for row in one["rows"]] for one in (here, there)]
                assert names[0] == names[1], path
