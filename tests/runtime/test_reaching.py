"""`App.reach` retries a store that may come back, and reports at once what must be corrected."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from headway.core.errors import StoreMisconfigured, StoreUnavailable
from headway.runtime.app import App
from headway.runtime.timing import Timing
from headway.stores import open_store
from tests.servers.process import free_port
from tests.servers.stores import NewUrl


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


async def test_unreachable_server_is_retried_for_the_given_time() -> None:
    timing = Paused()
    with pytest.raises(StoreUnavailable, match="unreachable") as error:
        await reach(f"redis://127.0.0.1:{free_port()}/0", timing)
    assert not isinstance(error.value, StoreMisconfigured)
    assert timing.pauses > 10
    assert timing.now >= 30
