from __future__ import annotations

import asyncio
from typing import Any

import pytest

import headway as hw
from headway.contract.definitions import Role
from headway.contract.extensions import Suspicion
from headway.core.errors import (
    InvalidValue,
    SchemaMismatch,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from headway.server.alerts.watch import AlertWatcher
from headway.server.service import Readiness
from headway.stores.memory import MemoryStore
from headway.testing.faulty import StoreProxy
from tests.client.waiting import until
from tests.server.rig import Rig, serving


class Failing:
    """A store whose operations fail."""

    def __init__(self, error: Exception | None = None, *, changed: bool = False) -> None:
        self.error = error
        self.changed = changed
        self.asked = 0

    async def read(self, query: Any) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error

    async def suspicion(self) -> Suspicion | None:
        return Suspicion(at=1, by="process 7", reason="older") if self.changed else None

    async def new_epoch(self, author: str, reason: str) -> int: ...
    async def reset_clock(self, author: str, reason: str) -> int: ...


class Refused(StoreProxy):
    """A store that can be read, and may refuse to be written."""

    refusal: StoreError | None = None

    async def _call(self, name: str, operation: Any) -> Any:
        if self.refusal is not None and name != "read":
            raise self.refusal
        return await super()._call(name, operation)


class Refusing(StoreProxy):
    """A store that refuses its first sweep."""

    swept = 0

    async def _call(self, name: str, operation: Any) -> Any:
        self.swept += name == "sweep"
        if name == "sweep" and self.swept == 1:
            raise InvalidValue("kind is empty")
        return await super()._call(name, operation)


async def ready(rig: Rig, store: Any) -> Any:
    rig.service.readiness = Readiness(store, rig.service.timing)
    return await rig.http.get("/readyz")


async def test_liveness_and_readiness_need_no_token():
    async with serving() as rig:
        for path in ("/healthz", "/readyz"):
            reply = await rig.http.get(path)
            assert (reply.status_code, reply.json()) == (200, {"status": "ok"})


async def test_server_with_an_unreachable_store_is_live_and_not_ready():
    async with serving() as rig:
        away = Failing(StoreUnavailable("no route to db.internal"))
        rig.service.store = away  # pyright: ignore[reportAttributeAccessIssue]
        assert (await rig.http.get("/healthz")).status_code == 200
        assert away.asked == 0
        reply = await ready(rig, away)
        assert reply.status_code == 503
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.json()["code"] == "store_unavailable"
        assert int(reply.headers["retry-after"]) >= 1
        assert "db.internal" not in reply.text


@pytest.mark.parametrize(
    ("store", "code"),
    [
        (Failing(SchemaMismatch("newer")), "schema_mismatch"),
        (Failing(changed=True), "store_changed"),
    ],
)
async def test_readiness_says_what_is_missing(store: Failing, code: str):
    async with serving() as rig:
        reply = await ready(rig, store)
        assert (reply.status_code, reply.json()["code"]) == (503, code)


async def test_store_that_does_not_answer_in_time_is_not_ready(monkeypatch: pytest.MonkeyPatch):
    class Mute:
        async def read(self, query: Any) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr("headway.server.service.STORE_TIMEOUT_S", 0.01)
    async with serving() as rig:
        reply = await ready(rig, Mute())
        assert (reply.status_code, reply.json()["code"]) == (503, "store_unavailable")


async def test_store_is_queried_at_most_once_a_second():
    async with serving() as rig:
        store = Failing()
        rig.service.readiness = Readiness(store, rig.service.timing)
        await asyncio.gather(*(rig.http.get("/readyz") for _ in range(20)))
        assert store.asked == 1


async def test_stopping_server_is_not_ready():
    async with serving() as rig:
        rig.service.stopping.set()
        reply = await rig.http.get("/readyz")
        assert (reply.status_code, reply.json()["code"]) == (503, "stopping")


@pytest.mark.parametrize("error", [StoreFull, StoreReadOnly])
async def test_server_whose_store_can_be_read_but_not_written_is_not_ready(
    error: type[StoreFull | StoreReadOnly],
):
    store = Refused(MemoryStore())
    async with serving(app=hw.App(store=store)) as rig:
        service = rig.service
        watch = AlertWatcher(
            store, service.timing, rule_sets=(), alerts=service.alerts, sinks=(), each_ms=10_000
        )
        store.refusal = error("the device of /srv/headway has 0 bytes free")
        await watch.check()
        reply = await rig.http.get("/readyz")
        assert (reply.status_code, reply.json()["code"]) == (503, error.code)
        assert "/srv" not in reply.text
        store.refusal = None
        await watch.check()
        assert (await rig.http.get("/readyz")).status_code == 200
    await store.close()


async def test_server_goes_on_sweeping_after_a_sweep_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("headway.server.service.AGAIN_S", 0.0)
    store = Refusing(MemoryStore())
    async with serving(app=hw.App(store=store), chores=True) as rig:
        job = await rig.send(due="0s", expires="1ms")

        async def expired() -> bool:
            return (await rig.ask(Role.VIEWER, f"/v1/jobs/{job}"))["state"] == "dead"

        await until(expired)
    assert "background task sweep failed" in caplog.text
    assert store.swept > 1
    await store.close()
