"""The most-called routes give the same replies on the fast path as on the usual one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from headway.contract.definitions import Role
from headway.server import build as building
from tests.server.rig import serving

ID = "01a1fd5c-3534-7364-bb2d-381e7c2d9c63"
JSON = {"content-type": "application/json"}
JOBS: list[tuple[str, bytes, dict[str, str]]] = [
    ("/v1/jobs", b'{"kind": "k", "id": "%s"}' % ID.encode(), {}),
    ("/v1/jobs", b'{"kind": "k", "id": "%s"}' % ID.encode(), {}),
    ("/v1/jobs", b'{"kind": "other", "id": "%s"}' % ID.encode(), {}),
    ("/v1/jobs", b'[{"kind": "k", "key": "a"}]', {"idempotency-key": "same"}),
    ("/v1/jobs", b'[{"kind": "k", "key": "a"}]', {"idempotency-key": "same"}),
    ("/v1/jobs", b'[{"kind": "k", "key": "b"}]', {"idempotency-key": "same"}),
    ("/v1/jobs", b'{"kind": "k"}', {"idempotency-key": ""}),
    ("/v1/jobs", b'{"kind": "k"}', {"idempotency-key": "x" * 300}),
    ("/v1/jobs", b"", {}),
    ("/v1/jobs", b"null", {}),
    ("/v1/jobs", b"[]", {}),
    ("/v1/jobs", b"{", {}),
    ("/v1/jobs", b'{"kind": NaN}', {}),
    ("/v1/jobs", b"[" * 5000, {}),
    ("/v1/jobs", b'{"kind": ""}', {}),
    ("/v1/jobs", b'{"kind": "k", "priority": -1, "lane": 7}', {}),
    ("/v1/jobs", b'{"kind": "k", "due": "yesterday"}', {}),
    ("/v1/jobs", b'{"kind": "k", "state": "dead"}', {}),
    ("/v1/jobs", b'{"kind": "k", "gates": ["nowhere"]}', {}),
    ("/v1/jobs", b'{"kind": "k"}', {"content-type": "text/plain"}),
    ("/v1/jobs", b'{"kind": "k", "key": "p"}', {"content-type": "application/json; charset=utf-8"}),
    ("/v1/jobs", b'{"kind": "k"}', {"authorization": "Bearer nonsense"}),
    ("/v1/claims", b'{"worker": "w", "request": 1, "lanes": "nowhere"}', {}),
    ("/v1/claims", b'{"worker": "w", "lanes": []}', {}),
    ("/v1/claims", b'{"worker": "w", "lanes": "a:0"}', {}),
    ("/v1/settlements", b'{"worker": "w", "outcomes": []}', {}),
    (
        "/v1/settlements",
        b'{"worker": "w", "outcomes": [{"job": "%s", "run": 1, "outcome": "succeeded"}]}'
        % ID.encode(),
        {},
    ),
    ("/v1/settlements", b'{"worker": "w", "outcomes": [{"outcome": "nothing"}]}', {}),
    ("/v1/leases", b'{"worker": "w", "running": []}', {}),
    ("/v1/leases", b'{"worker": "w", "lease": "1ms"}', {}),
]
"""Path, body, and headers in addition to the usual ones."""


@asynccontextmanager
async def calling() -> AsyncIterator[httpx.AsyncClient]:
    async with serving(tokens=True) as rig:
        told = {"authorization": f"Bearer {rig.tokens[Role.ADMIN]}"}
        async with httpx.AsyncClient(base_url=rig.url, headers=told, timeout=20) as client:
            yield client


async def replies() -> list[tuple[int, dict[str, str], Any]]:
    """Return the replies to each request, in order, without the fields that vary between calls."""
    found: list[tuple[int, dict[str, str], Any]] = []
    async with calling() as client:
        for path, body, headers in JOBS:
            reply = await client.post(path, content=body, headers={**JSON, **headers})
            kept = {
                name: value
                for name, value in reply.headers.items()
                if name not in {"date", "x-request-id", "content-length"}
            }
            found.append((reply.status_code, kept, _plain(reply.text)))
    return found


def _plain(text: str) -> str:
    text = re.sub(r'"(now|lease_until|request)":\d+', r'"\1":0', text)
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", lambda one: one[0] if one[0] == ID else "ID", text)


async def test_both_paths_reply_alike(monkeypatch: pytest.MonkeyPatch):
    quick = await replies()
    monkeypatch.setattr(building, "FAST_ROUTES", ())
    usual = await replies()
    for (path, body, headers), one, other in zip(JOBS, quick, usual, strict=True):
        assert one == other, (path, body, headers)
    assert {status for status, _, _ in quick} >= {200, 201, 400, 401, 409, 422}


async def test_unexpected_error_is_a_problem_that_reveals_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def fail(*_: object, **__: object) -> object:
        message = "the canary"
        raise RuntimeError(message)

    async with calling() as client:
        monkeypatch.setattr("headway.server.sending.send_jobs", fail)
        monkeypatch.setattr("headway.server.routes.jobs.make_jobs", fail)
        reply = await client.post("/v1/jobs", json={"kind": "k"})
    assert (reply.status_code, reply.json()["code"]) == (500, "bug")
    assert "canary" not in reply.text
    assert reply.headers["x-request-id"] in reply.json()["instance"]
    assert "canary" in caplog.text
