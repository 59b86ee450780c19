"""`headway copy`: a stopped store's content goes into an empty one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

import headway as hw
from headway.contract.claims import ClaimRequest
from headway.stores import open_store
from headway.testing.dump import dump
from tests.cli.conftest import Headway

OLD, NEW = "sqlite:///old.db", "sqlite:///new.db"


@pytest.fixture
def old(folder: Path) -> str:
    app = hw.App(OLD)

    @app.job(gates=[hw.Slots("lines", 2)])
    async def call(phone: str) -> None: ...

    with app:
        for number in range(5):
            app.send(call, phone=str(number), key=f"k{number}")
    return OLD


def test_copy_carries_everything_and_closes_what_it_came_from(headway: Headway, old: str) -> None:
    ran = headway("copy", old, NEW)
    assert (ran.code, ran.out) == (0, "5 jobs are copied\n")
    assert "FROM is closed" in ran.err

    async def both() -> None:
        first, second = open_store(OLD), open_store(NEW)
        was, now = await dump(first), await dump(second)
        # The source is closed now, and shows its jobs so.
        assert now.jobs == tuple(replace(job, shown="ready") for job in was.jobs)
        closed = {gate.name: gate.closed_until is not None for gate in was.gates}
        assert closed["all"]
        assert not any(gate.closed_until for gate in now.gates)
        request = ClaimRequest(worker="w", request=1, lanes=(("main", 1),), n=9, free=9)
        assert (await first.claim(request)).jobs == []
        assert len((await second.claim(request)).jobs) == 2
        await first.close()
        await second.close()

    asyncio.run(both())


def test_copy_as_json_tells_rows_and_jobs(headway: Headway, old: str) -> None:
    document = headway("--json", "copy", old, NEW).document
    assert document["jobs"] == {"waiting": 5}
    assert document["rows"]["jobs"] == 5
    assert document["rows"]["templates"] == 1


def test_store_that_is_not_empty_is_not_copied_to(headway: Headway, old: str) -> None:
    assert headway("copy", old, NEW).code == 0
    ran = headway("copy", old, NEW)
    assert ran.code != 0
    assert "is not empty" in ran.err


def test_store_on_which_a_worker_lives_is_not_copied(headway: Headway, old: str) -> None:
    async def work() -> None:
        store = open_store(OLD)
        await store.claim(ClaimRequest(worker="w", request=1, lanes=(("main", 1),), n=1, free=1))
        await store.close()

    asyncio.run(work())
    ran = headway("copy", old, NEW)
    assert ran.code != 0
    assert "1 workers live" in ran.err
    assert "wait until their leases have ended" in ran.err
    assert "closed" not in headway("--store", OLD, "gates").out


def test_copy_onto_itself_and_from_nothing_are_refused(headway: Headway, folder: Path) -> None:
    assert "are the same" in headway("copy", OLD, OLD).err
    ran = headway("copy", "sqlite:///nothing.db", NEW)
    assert "there is no store at" in ran.err
    assert not (folder / "nothing.db").exists()
