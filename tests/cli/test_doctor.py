from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headway.cli.doctor.store import MOST_LANES, SYSTEM_LANES
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.core.errors import StoreChanged
from headway.core.gates.opening import Hours
from headway.core.gates.pool import Pool
from headway.core.gates.spec import GateUse
from headway.stores import open_store
from headway.stores.sqlite.timing import system_clock
from headway.systems.automations import dispatcher
from headway.systems.calls import lead as calls
from headway.systems.field_service import request
from headway.systems.notifications import notification
from tests.cli.conftest import Headway, Ran
from tests.cli.gates import declare, declare_line
from tests.cli.seeding import URL, claim, enqueue, new_job, with_store


def problems(ran: Ran) -> dict[str, str]:
    found = ran.document["findings"]
    return {one["subject"]: one["found"] for one in found if one["health"] == "problem"}


def warnings(ran: Ran) -> dict[str, str]:
    found = ran.document["findings"]
    return {one["subject"]: one["found"] for one in found if one["health"] == "warning"}


def test_healthy_store_has_only_good_findings(headway: Headway):
    headway("migrate")
    ran = headway("doctor", "--json")
    assert (ran.code, problems(ran), warnings(ran)) == (0, {}, {})
    subjects = [one["subject"] for one in ran.document["findings"]]
    for subject in ("sqlite", "permissions", "room", "integrity", "clock", "permits", "gates"):
        assert subject in subjects
    assert headway("doctor").out.count("\n") == len(subjects)


def test_missing_store_is_a_problem_and_is_not_created(headway: Headway, folder: Path):
    ran = headway("doctor", "--json")
    assert ran.code == 1
    assert problems(ran) == {"file": "headway.db does not exist"}
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_anything_but_a_regular_file_is_a_problem_and_is_not_opened(
    headway: Headway, folder: Path, make: Callable[[Path], None]
):
    """Opening a pipe would wait for another process that writes to it."""
    make(folder / "headway.db")
    assert problems(headway("doctor", "--json")) == {"file": "headway.db is not a regular file"}


def test_device_too_full_for_new_jobs_is_a_problem(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    headway("migrate")
    real = os.statvfs

    def nearly_full(place: str) -> os.statvfs_result:
        found = list(real(place))
        found[4] = 3
        return os.statvfs_result(found)

    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", nearly_full)
        ran = headway("doctor", "--json")
        assert ran.code == 1
        assert "new jobs are refused: the device of" in problems(ran)["room"]
        assert headway("send", "noop").code == 4
        url = "sqlite:///headway.db?reserve_bytes=0"
        assert headway("doctor", "--store", url).code == 0
        assert headway("send", "noop", "--store", url).code == 0
    assert headway("doctor").code == 0


def test_damaged_file_is_a_problem_and_is_not_changed(headway: Headway, folder: Path):
    enqueue(*(new_job(args=b'{"x": "%s"}' % (b"y" * 500)) for _ in range(200)))
    headway("doctor")
    path = folder / "headway.db"
    data = bytearray(path.read_bytes())
    data[20_000:60_000] = b"\xaa" * 40_000
    path.write_bytes(data)
    ran = headway("doctor", "--json")
    assert ran.code == 1
    assert "integrity" in problems(ran)
    found = [one["found"] for one in ran.document["findings"] if one["subject"] == "integrity"]
    assert len(found) > 1
    assert not any("\n" in one for one in found)
    assert path.read_bytes() == data


def test_sound_file_that_cannot_be_opened_is_not_reported_as_damaged(
    headway: Headway, folder: Path
):
    """A user without the right to write its folder gets the same error from SQLite."""
    headway("migrate")
    for log in folder.glob("headway.db-*"):
        log.unlink()
    folder.joinpath("headway.db-wal").mkdir()
    ran = headway("doctor", "--json")
    assert ran.code == 1
    (found,) = (one for one in ran.document["findings"] if one["subject"] == "integrity")
    assert "not checked, because SQLite cannot open it" in found["found"]
    assert "backup" not in found["hint"]


def test_file_that_is_not_a_database_is_a_problem(headway: Headway, folder: Path):
    folder.joinpath("headway.db").write_bytes(b"no database at all" * 500)
    ran = headway("doctor", "--json")
    assert ran.code == 1
    assert "integrity" in problems(ran)
    assert ran.err == ""


def test_file_that_others_can_open_is_a_warning(headway: Headway, folder: Path):
    headway("migrate")
    folder.joinpath("headway.db").chmod(0o644)
    ran = headway("doctor", "--json")
    assert ran.code == 0
    assert "permissions" in warnings(ran)


def test_job_that_needs_more_than_a_gate_has_is_a_problem(headway: Headway):
    declare_line()
    (made,) = enqueue(
        new_job(gates=(GateUse(name="line", template="line", amount=5, shared=True),))
    )
    ran = headway("doctor", "--json")
    assert ran.code == 1
    assert made in problems(ran)["never fits"]


def test_pool_without_members_suggests_members_and_not_a_capacity(headway: Headway):
    declare(Pool("numbers", {}))
    (made,) = enqueue(new_job(gates=(GateUse(name="numbers", template="numbers", shared=True),)))
    found = {one["subject"]: one for one in headway("doctor", "--json").document["findings"]}
    assert made in found["never fits"]["found"]
    for subject in ("never fits", "empty"):
        assert "add members to the pool" in found[subject]["hint"]
        assert "--capacity" not in found[subject]["hint"]


def test_pool_with_all_members_closed_is_a_warning_that_names_them(headway: Headway):
    declare(Pool("numbers", {"+1555": 2, "+1666": 1}))
    headway("gates", "close", "numbers/+1555")
    assert "closed" not in warnings(headway("doctor", "--json"))
    headway("gates", "close", "numbers/+1666")
    told = "2 gates are closed: numbers/+1555, numbers/+1666"
    assert warnings(headway("doctor", "--json"))["closed"] == told


def test_lane_with_jobs_and_no_worker_is_a_warning(headway: Headway):
    enqueue(new_job(lane="calls"))
    assert "calls" in warnings(headway("doctor", "--json"))["lanes"]


def test_many_lanes_without_a_worker_are_not_all_listed(headway: Headway):
    enqueue(*(new_job(lane=f"lane{number:02}") for number in range(MOST_LANES + 2)))
    found = [
        one["found"]
        for one in headway("doctor", "--json").document["findings"]
        if one["subject"] == "lanes"
    ]
    assert found[-2:] == [
        "the lane lane19 has 1 job but no live worker",
        "2 more lanes have jobs but no live worker",
    ]
    assert len(found) == MOST_LANES + 1


@pytest.mark.parametrize(
    ("lane", "command"),
    [
        ("mail", "headway worker APP --lanes mail"),
        ("calls", "headway worker APP --lanes calls, or headway worker --system calls"),
        ("dispenserd/main", "headway dispenserd"),
    ],
)
def test_hint_for_a_lane_without_worker_is_a_command_that_serves_it(
    headway: Headway, lane: str, command: str
):
    enqueue(new_job(lane=lane))
    (found,) = headway("doctor", "--json").document["findings"][-2:-1]
    assert (found["subject"], found["hint"]) == ("lanes", command)


def test_lanes_of_systems_are_those_that_the_systems_use():
    assert {
        **dict.fromkeys((calls.LANE, calls.AFTER), "calls"),
        **dict.fromkeys((request.OFFERS, request.AFTER, request.RINGS), "field_service"),
        **dict.fromkeys((*notification.LANES, notification.HISTORY_LANE), "notifications"),
        dispatcher.LANE: "automations",
    } == SYSTEM_LANES


def test_closed_gate_is_a_warning(headway: Headway):
    declare_line()
    headway("pause", "line")
    assert "line" in warnings(headway("doctor", "--json"))["closed"]


@pytest.mark.parametrize(("days", "health"), [(3, None), (10, "warning"), (40, "problem")])
def test_hours_not_extended_by_maintenance_are_reported(
    headway: Headway, days: int, health: str | None
):
    past = with_store(now, "memory://") - days * 86_400_000

    async def ask_for_hours(store: Store) -> None:
        item = DeclareGate(spec=Hours("office", "09:00-18:00", tz="Europe/Berlin"))
        await store.define(DefineRequest(items=(item,), author="code"))
        use = GateUse(name="office", template="office", shared=True, zone="Europe/Berlin")
        await store.enqueue([new_job(gates=(use,))])

    _with_clock(past, ask_for_hours)
    found = headway("doctor", "--json").document["findings"]
    assert [one["health"] for one in found if one["subject"] == "hours"] == [health] * bool(health)


def test_gate_outside_its_hours_is_not_said_to_be_open(headway: Headway):
    at = with_store(now, "memory://")
    days = ("thu", "fri", "sat", "sun", "mon", "tue", "wed")
    far_day = days[(at // 86_400_000 + 3) % 7]

    async def ask_for_hours(store: Store) -> None:
        item = DeclareGate(spec=Hours("office", "09:00-18:00", days=far_day))
        await store.define(DefineRequest(items=(item,), author="code"))
        await store.enqueue(
            [new_job(gates=(GateUse(name="office", template="office", shared=True, zone="UTC"),))]
        )

    with_store(ask_for_hours)
    assert re.search(r"office .* closed", headway("gates").out)
    found = {one["subject"]: one for one in headway("doctor", "--json").document["findings"]}
    assert "none closed by hand or by a job" in found["gates"]["found"]


def test_clock_that_was_ahead_is_a_problem_until_reset(headway: Headway):
    async def touch(store: Store) -> list[object]:
        return list(await store.enqueue([new_job()]))

    _with_clock(system_clock() + 3_600_000, touch)
    ran = headway("doctor", "--json")
    assert ran.code == 1
    assert "ahead of its clock" in problems(ran)["clock"]
    ran = headway("doctor", "--reset-clock", "--reason", "the battery was empty")
    assert ran.code == 0
    assert "went back by" in ran.err


def test_new_epoch_fences_earlier_runs(headway: Headway):
    (made,) = enqueue(new_job())
    claim("main")
    before = with_store(epoch)
    ran = headway("doctor", "--new-epoch", "--reason", "restored")
    assert ran.code == 0
    assert with_store(epoch) == before + 1

    async def sweep(store: Store) -> int:
        return (await store.sweep(100)).lost

    assert with_store(sweep) == 1
    assert headway("job", made, "--json").document["runs"][0]["outcome"] == "lost"


def test_suspect_store_is_a_problem_with_its_reason_and_remedy(headway: Headway):
    enqueue(new_job())

    async def be_replaced(store: Store) -> None:
        await store.lead("chores", "here", 1)
        with closing(sqlite3.connect("headway.db")) as db, db:
            # An older state: its highest recorded time is a minute lower.
            db.execute("UPDATE number SET n = n - 60000 WHERE key = -1")
        with pytest.raises(StoreChanged):
            await store.claim(
                ClaimRequest(worker="w", request=1, lanes=(("main", 1),), n=1, free=1)
            )

    with_store(be_replaced)
    ran = headway("doctor", "--json")
    assert ran.code == 1
    (found,) = [one for one in ran.document["findings"] if one["health"] == "problem"]
    assert found["subject"] == "store"
    assert "nothing is claimed" in found["found"]
    instant = r"\d{4}-\d\d-\d\dT[\d:.]+Z"
    assert re.search(f"time it remembers is {instant}, and {instant} was seen", found["found"])
    assert "process " in found["hint"]
    assert "--new-epoch" in found["hint"]


def test_store_without_persistence_has_no_epoch(headway: Headway):
    ran = headway("doctor", "--new-epoch", "--store", "memory://")
    assert ran.code == 2


async def now(store: Store) -> int:
    return (await store.read(StatsQuery())).now


async def epoch(store: Store) -> int:
    return (await store.read(StatsQuery())).epoch


def _with_clock(at: int, work):
    async def whole():
        store = open_store(URL, clock=lambda: at)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(whole())


def test_gate_without_capacity_is_a_warning_that_names_it(headway: Headway):
    enqueue(new_job())
    headway("gates", "set", "all", "--capacity", "0")
    assert warnings(headway("doctor", "--json"))["zero"] == "1 gate is at capacity 0: all"


def test_folder_as_store_is_refused(headway: Headway, folder: Path):
    folder.joinpath("shelf").mkdir()
    ran = headway("--store", "sqlite:///shelf", "send", "noop")
    assert ran.code == 4
    assert "shelf is not a regular file" in ran.err


def test_clock_different_from_that_of_the_machine_with_the_file_is_a_problem(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    enqueue(new_job())
    monkeypatch.setattr(
        "headway.cli.doctor.sqlite_file.system_clock", lambda: system_clock() + 3_600_000
    )
    ran = headway("doctor", "--json")
    assert ran.code == 1
    # On a slow machine, some time passes between reading the two clocks.
    found = problems(ran)["file clock"]
    assert re.match(r"this process's clock is 1h( \d+m)?( \d+s)? ahead of that of the store", found)
