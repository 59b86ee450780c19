"""Several processes on one file: each job starts once, all get a turn, dead ones free theirs."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from headway.contract.definitions import DeclareGate, DefineRequest
from headway.core.errors import StoreUnavailable
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.stores.sqlite import SqliteStore
from headway.stores.sqlite.notifier import folder_of
from tests.plain_jobs import LANE, assert_clean, claim, count, job, jobs
from tests.sqlite.processes import (
    LIMIT,
    SPAWN,
    consume,
    create_at_once,
    die_inside,
    enqueue_one,
    produce,
    running,
    stop_inside,
)
from tests.sqlite.rig import options


async def test_racing_processes_start_every_job_once(path: Path) -> None:
    store = SqliteStore(options(path))
    go, took = SPAWN.Event(), SPAWN.Queue()
    makers = [
        SPAWN.Process(target=produce, args=(str(path), f"maker-{n}", 20, 50, go)) for n in range(2)
    ]
    takers = [
        SPAWN.Process(target=consume, args=(str(path), f"taker-{n}", 2000, took, go))
        for n in range(2)
    ]
    with running(*makers, *takers):
        go.set()
        told = [await asyncio.to_thread(took.get, True, LIMIT) for _ in takers]
    runs = [run for _, mine in told for run in mine]
    assert len(runs) == len(set(runs))
    left = await claim(store, worker="last")
    assert len(runs) + len(left.jobs) == 2000
    assert await count(store, "succeeded") == len(runs)
    await assert_clean(store)
    await store.close()


async def test_waiter_is_woken_by_a_commit_of_another_process(path: Path) -> None:
    store = SqliteStore(options(path))
    await store.wait([LANE], None, 0)
    reply = await claim(store)
    other = SPAWN.Process(target=enqueue_one, args=(str(path), 1))
    with running(other):
        await asyncio.wait_for(store.wait([LANE], None, reply.seen), LIMIT)
        assert len((await claim(store, request=2)).jobs) == 1
    await store.close()


async def test_gate_widened_by_another_process_is_wide_at_the_next_claim(path: Path) -> None:
    one, other = SqliteStore(options(path)), SqliteStore(options(path))
    use = GateUse(name="door", template="door", shared=True)
    await one.define(DefineRequest(items=(DeclareGate(spec=Slots("door", 1)),), author="ann"))
    await one.enqueue(jobs(0, 3, gates=(use,)))
    assert len((await claim(one)).jobs) == 1
    await other.define(DefineRequest(items=(DeclareGate(spec=Slots("door", 2)),), author="ann"))
    assert len((await claim(one, request=2)).jobs) == 1
    await one.close()
    await other.close()


async def test_stopped_process_delays_others_no_longer_than_their_patience(
    path: Path,
) -> None:
    store = SqliteStore(options(path, patience_ms=300))
    await store.enqueue([job(0)])
    inside = SPAWN.Event()
    stopped = SPAWN.Process(target=stop_inside, args=(str(path), inside))
    with running(stopped):
        assert await asyncio.to_thread(inside.wait, LIMIT)
        os.kill(stopped.pid or 0, signal.SIGSTOP)
        with pytest.raises(StoreUnavailable, match="held") as error:
            await store.enqueue([job(1)])
        assert "nothing was written" in error.value.hint
        assert await count(store, "waiting") == 1
    # It was killed: its locks were released with it, and the refused job never started.
    assert (await store.enqueue([job(2)]))[0].created
    assert await count(store, "waiting") == 2
    await store.close()


async def test_process_killed_during_a_step_leaves_nothing_of_it(path: Path) -> None:
    store = SqliteStore(options(path))
    await store.enqueue(jobs(0, 100))
    inside = SPAWN.Event()
    killed = SPAWN.Process(target=die_inside, args=(str(path), inside))
    with running(killed):
        assert await asyncio.to_thread(inside.wait, LIMIT)
        os.kill(killed.pid or 0, signal.SIGKILL)
        await asyncio.to_thread(killed.join, LIMIT)
    assert await count(store, "waiting") == 100
    assert len((await claim(store)).jobs) == 100
    await assert_clean(store)
    await store.close()


async def test_file_can_be_created_by_several_processes_at_once(path: Path) -> None:
    go, told = SPAWN.Event(), SPAWN.Queue()
    makers = [SPAWN.Process(target=create_at_once, args=(str(path), told, go)) for _ in range(4)]
    with running(*makers):
        go.set()
        assert [await asyncio.to_thread(told.get, True, LIMIT) for _ in makers] == [True] * 4
    store = SqliteStore(options(path))
    assert await count(store, "waiting") == 4
    await store.close()


async def test_store_opened_before_a_fork_refuses_in_the_child(path: Path) -> None:
    store = SqliteStore(options(path))
    await store.enqueue([job(1)])
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            store.enqueue([job(2)]).send(None)
        except StoreUnavailable:
            code = 0
        finally:
            os._exit(code)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    await store.close()


async def test_store_closed_by_a_forked_child_keeps_its_parents_socket(path: Path) -> None:
    store = SqliteStore(options(path))
    await store.wait([LANE], None, 0)
    assert len(list(folder_of(path).iterdir())) == 1
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with suppress(StopIteration):
                store.close().send(None)
            code = 0
        finally:
            os._exit(code)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(list(folder_of(path).iterdir())) == 1
    await store.close()
    assert not folder_of(path).exists()
