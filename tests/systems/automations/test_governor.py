"""The governor's limit by load, with given readings, and the rules of alerts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway.core.errors import InvalidValue
from headway.server.alerts.rule_set import Facts
from headway.server.overview import read_overview
from headway.systems.automations import (
    AutomationsOverview,
    Thresholds,
    automation_rules,
    make,
    read_problems,
)
from headway.systems.automations.config import parse_config
from headway.systems.automations.dispatcher import Dispatcher
from headway.systems.automations.folders import Folders
from tests.cli.conftest import Headway
from tests.systems.automations.sessions_rig import new_repository
from tests.systems.automations.test_dispatching import entry, holding, service

HEAD = "[dispatcher]\nmax_concurrent = 3\n[dispatcher.governor]\n"
RULES = Path("docs/how-to/automations-runbooks.md")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "repository")


async def test_limit_is_lowered_while_the_load_is_high(tmp_path, repository):
    url = f"sqlite:///{tmp_path}/h.db"
    loads = {"cpu": 90.0, "memory": 80.0}
    other = new_repository(tmp_path / "other")
    head = f"{HEAD}cpu = 90\nmemory = 80\n"
    async with service(tmp_path, url, head=head) as one:
        dispatcher = one.rig.service.system_services["automations"]
        dispatcher.load = lambda: loads  # pyright: ignore[reportAttributeAccessIssue]

        async def most(wanted: int) -> bool:
            return (await one.get("/concurrency"))["max"] == wanted

        async def metric() -> str:
            text = (await one.rig.http.get("/metrics")).text
            return next(
                line.rpartition(" ")[2]
                for line in text.splitlines()
                if line.startswith("headway_automations_limit_lowered ")
            )

        # A load at its maximum does not lower the limit.
        await one.until(lambda: most(3))
        assert await metric() == "0.0"
        loads["cpu"] = 91.4
        await one.until(lambda: most(1))
        assert dispatcher.lowered == "cpu 91 % of 90 %"  # pyright: ignore[reportAttributeAccessIssue]
        assert await metric() == "1.0"
        command = holding(tmp_path)
        one.write(entry("a", repository, command), entry("b", other, command), head=head)

        async def states(wanted: list[str]) -> bool:
            rows = await one.get()
            return sorted(str(row["status"]) for row in rows["automations"]) == wanted

        try:
            await one.until(lambda: states(["running", "waiting"]))
            # An operator's setting takes precedence.
            await one.rig.http.put("/api/automations/concurrency", json={"max": 2})
            assert await most(2)
            await one.until(lambda: states(["running", "running"]))
            await one.rig.http.put("/api/automations/concurrency", json={"max": None})
            assert await most(1)
            loads.update(cpu=5.0, memory=80.4)
            await one.until(lambda: _true(dispatcher.lowered == "memory 80 % of 80 %"))  # pyright: ignore[reportAttributeAccessIssue]
            assert await most(1)
            loads["memory"] = 80.0
            await one.until(lambda: most(3))
        finally:
            (tmp_path / "go").touch()


def test_command_shows_why_the_limit_is_lower(
    headway: Headway, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = os.cpu_count() or 1
    monkeypatch.setattr(psutil, "getloadavg", lambda: (3.0 * cores, 0.0, 0.0))
    (folder / "automations.toml").write_text(f"{HEAD}cpu = 95\nmax_concurrent = 2\n")
    (folder / "headway.toml").write_text('[automations]\nstate_dir = "state"\n')
    assert headway("migrate").code == 0
    assert headway("automations", "dispatch", "--wait").code == 0
    shown = headway("automations", "limit")
    assert shown.out == "0 of 2 sessions; lowered by the load: cpu 300 % of 95 %\n"
    document = headway("automations", "limit", "--json").document
    assert document == {"used": 0, "max": 2, "lowered": "cpu 300 % of 95 %"}


@pytest.mark.parametrize(
    ("governor", "load", "most"),
    [
        ("", {"cpu": 1_000, "memory": 100}, 3),
        ("cpu = 80", {"cpu": 81, "memory": 100}, 1),
        ("cpu = 80", {"cpu": 80, "memory": 100}, 3),
        ("memory = 80\nmax_concurrent = 0", {"cpu": 500, "memory": 81}, 0),
        ("memory = 80\nmax_concurrent = 9", {"cpu": 500, "memory": 81}, 3),
    ],
)
def test_only_a_load_with_a_threshold_lowers_the_limit_and_never_raises_it(
    tmp_path: Path, governor: str, load: Mapping[str, float], most: int
) -> None:
    file = tmp_path / "automations.toml"
    file.write_text(f"{HEAD}{governor}\n")
    one = Dispatcher(file=file, folders=Folders(root=tmp_path), lease_ms=1, load=lambda: load)
    one.read()
    assert one.max_sessions == most
    edits = one.revision
    one.read()
    assert one.revision == edits


def test_invalid_governor_is_reported_and_off(tmp_path: Path) -> None:
    config = parse_config(f"{HEAD}memory = 101\n", tmp_path / "automations.toml")
    (fault,) = config.faults
    assert (fault.line, fault.error.partition(":")[0]) == (4, "memory")
    assert config.dispatcher.governor.memory is None


# ------------------------------------------------------------------------------------- alerts


def found(*sights: AutomationsOverview, **at: Any) -> dict[str, str]:
    """Return what each rule finds at the last of these checks."""
    rules = automation_rules(Thresholds.model_construct(**at))
    last: dict[str, str] = {}
    for overview in sights:
        last = {rule.name: one.text for rule in rules for one in rule.check(overview)}
    return last


@pytest.mark.parametrize(
    ("rule", "ms"),
    [
        ("automations_late", 60_000),
        ("entry_skipped", 0),
        ("session_failed", 0),
        ("session_waiting", 3_600_000),
        ("limit_lowered", 1_800_000),
    ],
)
def test_each_rule_alerts_after_its_time_and_not_before(rule: str, ms: int) -> None:
    wrong = {rule: {"a": "it is so"}}
    first = AutomationsOverview(at=5, found=wrong)
    if ms:
        assert found(first, AutomationsOverview(at=5 + ms - 1, found=wrong)) == {}
        healed = AutomationsOverview(at=6, found={})
        assert found(first, healed, AutomationsOverview(at=5 + ms, found=wrong)) == {}
    told = found(first, AutomationsOverview(at=5 + ms, found=wrong))
    assert list(told) == [rule]
    assert told[rule].startswith("it is so")


def test_each_rule_has_its_runbook(request: pytest.FixtureRequest) -> None:
    assert Thresholds().runbooks == str(RULES)
    text = (request.config.rootpath / RULES).read_text()
    for rule in automation_rules(Thresholds()):
        assert f"\n## {rule.name}\n" in text


def test_unusable_threshold_is_named(tmp_path: Path) -> None:
    settings = {"file": str(tmp_path / "a.toml"), "state_dir": str(tmp_path)}
    with pytest.raises(InvalidValue, match=r"automations\.alerts\.lat: there is no such setting"):
        make({**settings, "alerts": {"lat": 1}})


async def test_check_finds_problems_by_entry(tmp_path, repository):
    url = f"sqlite:///{tmp_path}/h.db"
    entries = [
        entry("good", repository),
        entry("bad", repository, "exit 3"),
        entry("gone", tmp_path / "gone"),
        entry("wrong", repository, schedule="moonrise"),
    ]
    async with service(tmp_path, url, *entries) as one:
        await one.ended("good")
        await one.ended("bad", "failed")
        dispatcher, store = one.rig.service.system_services["automations"], one.rig.store
        dispatcher.lowered = "cpu 300 % of 90 %"  # pyright: ignore[reportAttributeAccessIssue]

        async def skipped() -> bool:
            return (await one.row("gone"))["status"] == "skipped"

        await one.until(skipped)
        held = new_repository(tmp_path / "held")
        command = holding(tmp_path)
        one.write(*entries, entry("first", held, command), entry("second", held, command))

        async def problems() -> AutomationsOverview | None:
            return await read_problems(
                store, dispatcher, Facts(at=7, overview=await read_overview(store))
            )

        async def locked() -> bool:
            states = [(await one.row(name))["status"] for name in ("first", "second")]
            found = await problems()
            waiting = {} if found is None else found.found["session_waiting"]
            return "running" in states and len(waiting) == 1

        try:
            # One session runs, and the other has started to wait for it.
            await one.until(locked)
            overview = await problems()
        finally:
            (tmp_path / "go").touch()
        assert overview is not None
        assert overview.at == 7
        subjects = {rule: sorted(texts) for rule, texts in overview.found.items() if texts}
        (waiting,) = subjects.pop("session_waiting")
        assert waiting in {"first", "second"}
        subjects.pop("limit_lowered", None)
        assert subjects == {"entry_skipped": ["gone", "wrong"], "session_failed": ["bad"]}
        assert "does not appear to be a git repository" in overview.found["entry_skipped"]["gone"]
        assert overview.found["session_failed"]["bad"] == "the newest session is failed: status 3"
        assert await read_problems(store, dispatcher, Facts(at=8)) is None
        alerts = [name for rule_set in one.rig.service.alerts.rule_sets for name in rule_set.names]
        assert "session_failed" in alerts


async def _true(value: bool) -> bool:
    return value
