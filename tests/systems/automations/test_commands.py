"""`headway automations`, in this process and as processes that are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import psutil
import pytest

from headway.contract.store import Store
from headway.runtime.timing import REAL
from headway.systems.automations.reports import Marker, start_marker
from tests.cli.conftest import Headway
from tests.cli.test_serve import serving
from tests.systems.automations.sessions_rig import lives, new_repository, pids, until
from tests.systems.automations.test_dispatching import API, entry, holding
from tests.systems.automations.test_sessions import STUBBORN

SETTINGS = '[automations]\nstate_dir = "state"\nlease = "{lease}"\nlook_each = "50ms"\n'


def write(folder: Path, *entries: str, lease: str = "60s") -> None:
    (folder / "headway.toml").write_text(SETTINGS.format(lease=lease))
    (folder / "automations.toml").write_text("\n".join(entries))


@pytest.fixture
def repository(folder: Path) -> Path:
    return new_repository(folder / "repository")


def test_dispatch_starts_due_sessions_and_lists_skipped_ones(
    headway: Headway, folder: Path, repository: Path
) -> None:
    write(
        folder,
        entry("due", repository, "cat hello.txt"),
        entry("later", repository, schedule="at 09:00"),
        entry("off", repository, enabled=False),
        entry("wrong", repository, schedule="moonrise"),
    )
    assert headway("migrate").code == 0
    result = headway("automations", "dispatch", "--wait", "--json").document
    assert result["dispatched"] == 1
    assert result["skipped"] == {"not_due": 1, "locked": 0, "concurrency_limit": 0, "disabled": 1}
    (error,) = result["errors"]
    assert error["automation_id"] == "wrong"
    assert error["error"].startswith("automations.toml:")
    again = headway("automations", "dispatch", "--wait", "--json").document
    assert (again["dispatched"], again["skipped"]["not_due"]) == (0, 2)
    logs = headway("automations", "logs", "due", "--json").document
    assert "hello" in logs["lines"]
    rows = headway("automations", "list", "--json").document["automations"]
    assert [(row["id"], row["status"]) for row in rows] == [
        ("due", "succeeded"), ("later", None), ("off", None),
    ]  # fmt: skip


def test_dispatch_of_another_file_replaces_no_entries_of_the_settings_file(
    headway: Headway, folder: Path, repository: Path
) -> None:
    write(folder, entry("ours", repository))
    other = folder / "other.toml"
    other.write_text(entry("theirs", repository))
    line = ("automations", "dispatch", "--wait", "--json", "--file", "other.toml")
    assert headway("migrate").code == 0
    # Nothing of the settings' file is in the timetable yet.
    assert headway(*line).document["dispatched"] == 1
    assert headway("automations", "dispatch", "--wait", "--json").document["dispatched"] == 1
    refused = headway(*line)
    assert refused.code == 2
    assert (
        "other.toml would replace 'ours' and all other entries of automations.toml" in refused.err
    )
    entries = headway("timetable", "--json").document["entries"]
    assert [one["spec"]["name"] for one in entries] == ["automation:ours"]
    same = (*line[:-1], str(folder / "automations.toml"))
    assert headway(*same).document["dispatched"] == 0


def test_waiting_dispatch_lists_sessions_that_could_not_be_started(
    headway: Headway, folder: Path, repository: Path
) -> None:
    write(folder, entry("good", repository), entry("gone", folder / "gone"))
    assert headway("migrate").code == 0
    result = headway("automations", "dispatch", "--wait", "--json").document
    assert result["dispatched"] == 1
    assert [one["automation_id"] for one in result["errors"]][:1] == ["gone"]
    assert "does not appear to be a git repository" in result["errors"][0]["error"]


def test_waiting_dispatch_counts_sessions_locked_meanwhile(
    headway: Headway, folder: Path, repository: Path
) -> None:
    write(folder, entry("a", repository), entry("b", repository))
    assert headway("migrate").code == 0
    result = headway("automations", "dispatch", "--wait", "--json").document
    assert result["dispatched"] == 1
    assert result["skipped"] == {"not_due": 0, "locked": 1, "concurrency_limit": 0, "disabled": 0}
    # The skipped entry is not lost.
    again = headway("automations", "dispatch", "--wait", "--json").document
    assert (again["dispatched"], again["skipped"]["not_due"]) == (1, 1)


def test_dispatch_counts_none_started_by_another_meanwhile(
    headway: Headway, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("a", "b")
    write(folder, *(entry(name, new_repository(folder / name)) for name in names))
    assert headway("migrate").code == 0
    other: list[dict[str, Any]] = []

    async def meanwhile(store: Store) -> Marker:
        begun = await start_marker(store)
        line = [sys.executable, "-m", "headway", "automations", "dispatch", "--wait", "--json"]
        done = await asyncio.to_thread(subprocess.run, line, capture_output=True, check=True)
        other.append(json.loads(done.stdout))
        return begun

    monkeypatch.setattr("headway.cli.commands.automations.start_marker", meanwhile)
    result = headway("automations", "dispatch", "--wait", "--json").document
    assert (other[0]["dispatched"], other[0]["skipped"]["locked"]) == (2, 0)
    assert (result["dispatched"], result["skipped"]["locked"]) == (0, 2)
    assert result["skipped"]["not_due"] == 0


def test_sessions_continue_behind_a_returned_dispatch(
    headway: Headway, folder: Path, repository: Path
) -> None:
    write(folder, entry("a", repository, holding(folder)), entry("b", repository, "true"))
    assert headway("migrate").code == 0
    try:
        first = headway("automations", "dispatch", "--json").document
        assert (first["dispatched"], first["skipped"]["locked"]) == (1, 1)

        def locks() -> list[dict[str, Any]]:
            return headway("automations", "locks", "--json").document["locks"]

        # The command starts once its repository is prepared.
        wait_until(lambda: locks()[0]["pid"] is not None)
        assert locks()[0]["repo_url"] == str(repository)
        # A store's URL may have a password.
        keeper = psutil.Process(locks()[0]["pid"]).parents()[1].cmdline()
        assert "dispatch" in keeper
        assert "sqlite:" not in " ".join(keeper)
        second = headway("automations", "dispatch", "--json").document
        assert second["dispatched"] == 0
        usage = headway("automations", "limit", "2", "--json").document
        assert usage == {"used": 1, "max": 2, "lowered": ""}
        assert headway("automations", "limit", "--reset", "--json").document["max"] == 3
    finally:
        (folder / "go").touch()

    def ended() -> bool:
        rows = headway("automations", "--json").document["automations"]
        return rows[0]["status"] == "succeeded"

    wait_until(ended)
    last = headway("automations", "dispatch", "--wait", "--json").document
    assert last["dispatched"] == 1


@pytest.mark.slow
def test_session_continues_behind_a_killed_dispatch(
    headway: Headway, folder: Path, repository: Path
) -> None:
    write(folder, entry("one", repository, "cat hello.txt", schedule="at 09:00"))
    headway("automations", "dispatch")
    headway("automations", "run", "one")
    read, started = os.pipe()
    os.close(read)
    line = ["-m", "headway", "automations", "dispatch", f"--detached={started}"]
    keeper = subprocess.run([sys.executable, *line], cwd=folder, pass_fds=[started], check=False)
    os.close(started)
    (one,) = headway("automations", "list", "--json").document["automations"]
    assert (keeper.returncode, one["status"]) == (0, "succeeded")


def test_each_session_of_a_dispatch_has_its_own_keeper(
    headway: Headway, folder: Path, repository: Path
) -> None:
    other, seen = new_repository(folder / "other"), folder / "seen"
    seen.mkdir()
    write(
        folder,
        entry("killed", repository, f"echo $$ > {seen}/killed.pid; sleep 600"),
        entry("other", other, f"echo $$ > {seen}/other.pid; {holding(folder)}"),
        lease="3s",
    )
    assert headway("migrate").code == 0

    def status() -> dict[str, str]:
        rows = headway("automations", "--json").document["automations"]
        return {row["id"]: row["status"] for row in rows}

    try:
        assert headway("automations", "dispatch", "--json").document["dispatched"] == 2
        wait_until(lambda: len(pids(seen)) == 2)
        keepers = [
            psutil.Process(int((seen / f"{name}.pid").read_text())).parents()[1]
            for name in ("killed", "other")
        ]
        assert keepers[0] != keepers[1]
        assert all("--detached" in " ".join(one.cmdline()) for one in keepers)
        keepers[0].kill()
        wait_until(lambda: not lives(int((seen / "killed.pid").read_text())))
        write(folder, entry("next", repository), entry("other", other, "true"), lease="3s")
        # The lock ends with the lease: dispatches find it locked until then, and no longer.
        wait_until(lambda: headway("automations", "dispatch").code == 0 and "next" in status())
        wait_until(lambda: (headway("automations", "dispatch"), status()["next"] == "succeeded")[1])
        assert status()["other"] == "running"
    finally:
        (folder / "go").touch()
    wait_until(lambda: status()["other"] == "succeeded")
    wait_until(lambda: not lives(keepers[1].pid))
    assert not supervisors()


@pytest.mark.slow
def test_release_by_any_form_of_the_url_ends_a_session(
    headway: Headway, folder: Path, repository: Path
) -> None:
    write(folder, entry("a", repository, holding(folder)), lease="3s")
    assert headway("migrate").code == 0
    assert headway("automations", "dispatch", "--json").document["dispatched"] == 1
    wait_until(lambda: len(pids(folder)) == 1)
    (pid,) = pids(folder)
    released = headway("automations", "release", f"file://{repository}/.git", "--json")
    assert released.code == 0, released.err
    wait_until(lambda: not lives(pid))
    wait_until(lambda: headway("automations", "locks", "--json").document["locks"] == [])
    assert headway("automations", "release", str(repository)).code == 2


def test_plan_counts_intervals_as_the_timetable_does(
    headway: Headway, folder: Path, repository: Path
) -> None:
    write(
        folder,
        entry("todo", repository),
        entry("hourly", repository, schedule="20 * * * *"),
    )
    assert headway("migrate").code == 0
    assert headway("automations", "dispatch", "--wait").code == 0
    found = headway("automations", "plan", "--fires=2", "--json").document
    todo, hourly = found["plan"]["entries"]
    assert (todo["name"], hourly["name"], found["unseen"]) == ("todo", "hourly", [])
    told = headway("timetable", "next", "automation:todo", "2", "--json").document
    assert todo["next"] == told["next"]
    assert todo["offsets_ms"] == [told["next"][0] % 1_800_000]
    assert found["plan"]["tick_ms"] % 1000 == 0
    # An edit keeps the interval's reference time, also before it is applied.
    write(folder, entry("todo", repository, schedule="45m"))
    (todo,) = headway("automations", "plan", "--json").document["plan"]["entries"]
    assert todo["offsets_ms"] == [(told["next"][0] - 1_800_000) % 2_700_000]


def test_plan_and_list_show_no_fire_of_a_never_seen_interval(
    headway: Headway, folder: Path, repository: Path
) -> None:
    write(
        folder,
        entry("todo", repository),
        entry("hourly", repository, schedule="20 * * * *"),
    )
    ran = headway("automations", "plan")
    assert ran.out.splitlines()[1].endswith("30m     counts from when the entry is first seen")
    assert "there is no store at headway.db" in ran.err
    assert not (folder / "headway.db").exists()
    assert headway("migrate").code == 0
    found = headway("automations", "plan", "--json").document
    assert found["unseen"] == ["todo"]
    assert [one["name"] for one in found["plan"]["entries"]] == ["hourly"]
    assert "the store does not have yet" in headway("automations", "plan").err
    todo, hourly = headway("automations", "list", "--json").document["automations"]
    assert todo["next"] is None
    assert hourly["next"] is not None
    write(folder, entry("todo", repository))
    assert "tick" not in headway("automations", "plan").out


def test_limit_has_the_range_of_the_route(headway: Headway, folder: Path, repository: Path) -> None:
    write(folder, entry("off", repository, enabled=False))
    assert headway("migrate").code == 0
    assert headway("automations", "dispatch").code == 0
    refused = headway("automations", "limit", "10001")
    assert (refused.code, refused.out) == (2, "")
    assert "10001 is not a valid number of sessions at once" in refused.err
    assert headway("automations", "limit", "10000", "--json").document["max"] == 10_000
    assert headway("automations", "limit", "0", "--json").document["max"] == 0


@pytest.mark.parametrize("name", ["list", "plan"])
def test_invalid_entry_ends_a_listing_with_1(
    headway: Headway, folder: Path, repository: Path, name: str
) -> None:
    assert headway("migrate").code == 0
    write(folder, entry("right", repository), entry("wrong", repository, schedule="moonrise"))
    ran = headway("automations", name)
    assert ran.code == 1
    assert "right" in ran.out
    assert ran.err.count("automations.toml:") == 1
    ran = headway("automations", name, "--json")
    assert (ran.code, len(json.loads(ran.out)["errors"])) == (1, 1)
    write(folder, entry("right", repository))
    assert headway("automations", name).code == 0


def test_problems_are_reported_clearly(headway: Headway, folder: Path, repository: Path) -> None:
    ran = headway("automations", "plan")
    assert ran.code == 2
    assert "automations.toml cannot be read" in ran.err
    write(folder, entry("a", repository, schedule="99 * * * *"))
    assert "automations.toml:" in headway("automations", "plan").err
    assert headway("migrate").code == 0
    unknown = headway("automations", "run", "b")
    assert "there is no automation 'b'" in unknown.err
    assert "schedule" in headway("automations", "run", "a").err
    assert headway("automations", "logs", "a").code == 2


@pytest.mark.slow
async def test_killed_service_leaves_no_process_and_no_lock_beyond_its_lease(
    folder: Path, repository: Path
) -> None:
    (folder / "pids").mkdir()
    write(folder, entry("a", repository, STUBBORN.format(folder=folder / "pids")), lease="6s")
    with serving("--system=automations") as (server, _, _):
        await until(lambda: len(pids(folder / "pids")) == 3)
        found = pids(folder / "pids")
        server.send_signal(signal.SIGKILL)
        server.wait()
        await until(lambda: not any(map(lives, found)))
    assert not supervisors()
    write(folder, entry("b", repository, "true"), lease="6s")
    with serving("--system=automations") as (_, url, _):

        async def rows() -> dict[str, Any]:
            reply = await http.get(f"{url}{API}")
            return {row["id"]: row for row in reply.json()["automations"]}

        async with httpx.AsyncClient() as http:
            # It cannot start before the lease of the killed session has expired.
            while (await rows())["b"]["status"] != "succeeded":
                await REAL.pause(0.1)


@pytest.mark.slow
async def test_service_frozen_past_its_lease_has_no_session_when_it_continues(
    folder: Path, repository: Path
) -> None:
    (folder / "pids").mkdir()
    write(folder, entry("a", repository, STUBBORN.format(folder=folder / "pids")), lease="6s")
    with serving("--system=automations") as (server, url, _):
        await until(lambda: len(pids(folder / "pids")) == 3)
        found = pids(folder / "pids")
        server.send_signal(signal.SIGSTOP)
        # The supervisor is not stopped, and kills the session before the lease ends in the store.
        await until(lambda: not any(map(lives, found)))
        server.send_signal(signal.SIGCONT)
        async with httpx.AsyncClient() as http:
            while True:
                reply = await http.get(f"{url}{API}")
                (row,) = reply.json()["automations"]
                if row["status"] == "failed":
                    break
                await REAL.pause(0.1)
            assert (await http.get(f"{url}{API}/locks")).json() == {"locks": []}


def supervisors() -> list[int]:
    """Return the supervisors of this test's folder that are still running."""
    here = os.getcwd()
    found: list[int] = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        line = process.info["cmdline"] or []
        if process.info["cwd"] == here and any(one.endswith("/supervisor") for one in line):
            found.append(process.pid)
    return found


def wait_until(condition: Any) -> None:
    """Wait for something that other processes do, up to the test's own limit."""
    while not condition():
        Event().wait(0.05)
