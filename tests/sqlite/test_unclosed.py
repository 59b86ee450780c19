"""A store that is dropped without being closed warns, and leaves no thread or file behind."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import warnings
from pathlib import Path

import pytest

import headway as hw
from headway.contract.views import StatsQuery
from headway.stores.sqlite import SqliteStore
from headway.stores.sqlite.notifier import folder_of
from tests.plain_jobs import LANE, job
from tests.sqlite.rig import drive, options

LIMIT = 60


def ended(before: set[threading.Thread]) -> bool:
    """Wait for the threads started since then, and return whether all of them ended."""
    started = set(threading.enumerate()) - before
    for one in started:
        one.join(LIMIT)
    return not any(one.is_alive() for one in started)


def test_dropped_store_warns_and_its_threads_end(path: Path) -> None:
    before = set(threading.enumerate())

    async def use() -> None:
        store = SqliteStore(options(path))
        await store.enqueue([job(1)])
        await store.read(StatsQuery())
        await store.wait([LANE], None, 0)

    with pytest.warns(ResourceWarning, match=r"unclosed store .*headway\.db"):
        asyncio.run(use())
    assert ended(before)
    assert not folder_of(path).exists()


def test_dropped_store_that_started_no_writer_thread_warns_too(path: Path) -> None:
    before = set(threading.enumerate())
    store = SqliteStore(options(path))
    assert drive(store.enqueue([job(1)]))[0].created
    writer = store._writer
    with pytest.warns(ResourceWarning, match="unclosed store"):
        del store
    assert ended(before)
    assert writer._ledger is None


def test_threads_of_a_dropped_store_end_even_if_warnings_are_errors(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, raised = set(threading.enumerate()), list[object]()
    monkeypatch.setattr(sys, "unraisablehook", lambda args: raised.append(args.exc_type))

    async def use() -> None:
        await SqliteStore(options(path)).enqueue([job(1)])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(use())
    assert raised == [ResourceWarning]
    assert ended(before)


def test_closed_store_is_dropped_without_a_warning(path: Path) -> None:
    store = SqliteStore(options(path))
    assert drive(store.enqueue([job(1)]))[0].created
    drive(store.close())
    del store
    gc.collect()


def test_store_that_cannot_be_opened_is_dropped_without_a_warning(tmp_path: Path) -> None:
    with pytest.raises(hw.StoreUnavailable):
        SqliteStore(options(tmp_path))
    gc.collect()


def test_dropped_app_warns_and_its_threads_end(path: Path) -> None:
    before = set(threading.enumerate())
    app = hw.App(f"sqlite:///{path}")
    sent = app.send("noop")
    assert app.wait(sent.id, within="0s") is None
    del sent, app
    with pytest.warns(ResourceWarning, match="unclosed"):
        gc.collect()
    assert ended(before)
