"""`App.reach` retries a store that may come back, and reports at once what must be corrected."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

import psycopg
import pytest

from headway.core.errors import StoreMisconfigured, StoreUnavailable
from headway.core.gates.slots import Slots
from headway.runtime.app import App
from headway.runtime.timing import Timing
from headway.stores import open_store
from headway.stores.memory import MemoryStore
from headway.testing.faulty import Fault, FaultyStore
from tests.postgres.roles import as_role, fresh_role
from tests.servers.process import free_port
from tests.servers.stores import NewUrl

LIMIT_S = 20
"""In seconds. A worker that runs longer goes on."""


class Paused(Timing):
    """A clock that only pauses advance, and that counts them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses = 0

    def monotonic(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.now += seconds
        self.pauses += 1


def changed(url: str, **parts: str) -> str:
    return urlunsplit(urlsplit(url)._replace(**parts))


async def reach(url: str, timing: Timing) -> None:
    app = App(url, opener=open_store, timing=timing)
    try:
        await app.reach("30s")
    finally:
        await app.close_async()


async def misconfigured(url: str, match: str) -> str:
    timing = Paused()
    with pytest.raises(StoreMisconfigured, match=match) as error:
        await reach(url, timing)
    assert timing.pauses == 0
    return error.value.hint


async def test_missing_folder_is_reported_at_once(tmp_path: Path) -> None:
    hint = await misconfigured(f"sqlite:///{tmp_path}/missing/headway.db", "No such file")
    assert "writable" in hint


async def test_path_of_a_folder_is_reported_at_once(tmp_path: Path) -> None:
    await misconfigured(f"sqlite:///{tmp_path}", "not a regular file")


async def test_unknown_database_is_reported_at_once(new_url: NewUrl) -> None:
    url = changed(new_url("postgresql"), path="/no_such_database")
    assert "CREATE DATABASE" in await misconfigured(url, "no_such_database")


async def test_unknown_user_is_reported_at_once(new_url: NewUrl) -> None:
    url = new_url("postgresql")
    host = urlsplit(url).netloc.rpartition("@")[2]
    assert "user" in await misconfigured(changed(url, netloc=f"no_such_user@{host}"), "no_such")


async def test_unknown_database_number_is_reported_at_once(new_url: NewUrl) -> None:
    await misconfigured(changed(new_url("redis"), path="/999"), "DB index")


@pytest.mark.parametrize("declares", [True, False])
async def test_worker_that_lacks_a_permission_ends_at_its_start(
    new_url: NewUrl, declares: bool
) -> None:
    url = new_url("postgresql")
    await open_store(url).close()
    place, (namespace,) = changed(url, query=""), parse_qs(urlsplit(url).query)["namespace"]
    with fresh_role(place) as role:
        with psycopg.connect(place, autocommit=True) as admin:
            for grant in ("USAGE ON SCHEMA", "SELECT ON ALL TABLES IN SCHEMA"):
                admin.execute(f"GRANT {grant} {namespace} TO {role}".encode())
        app = App(as_role(url, role), opener=open_store)
        gates = [Slots("line", 1)] if declares else []
        app.job(name="call", gates=gates)(lambda: None)
        try:
            with pytest.raises(StoreMisconfigured, match="permission denied"):
                await app.worker().run()
        finally:
            await app.close_async()


@pytest.mark.parametrize("operation", ["define", "claim"])
async def test_worker_whose_store_is_away_at_its_start_calls_again(operation: str) -> None:
    store = FaultyStore(MemoryStore())
    store.plan(Fault.REFUSE, operation=operation)
    app = App("memory://", opener=lambda _: store)
    app.job(name="call", gates=[Slots("line", 1)])(lambda: None)
    await app.worker(until_idle=True).run()
    assert store.calls.count(operation) > 1


async def test_unreachable_server_is_retried_for_the_given_time() -> None:
    timing = Paused()
    with pytest.raises(StoreUnavailable, match="unreachable") as error:
        await reach(f"redis://127.0.0.1:{free_port()}/0", timing)
    assert not isinstance(error.value, StoreMisconfigured)
    assert timing.pauses > 10
    assert timing.now >= 30
