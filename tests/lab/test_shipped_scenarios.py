from __future__ import annotations

from pathlib import Path

import pytest

from headway.lab.invariants import check
from headway.lab.scenario_file import read_scenarios
from headway.lab.simulate import play, simulate

EXAMPLES = Path(__file__).parents[2] / "examples"
SHIPPED = sorted(EXAMPLES.glob("**/scenario.toml")) + sorted(EXAMPLES.glob("scenarios/*.toml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_each_shipped_scenario_can_be_read(path: Path) -> None:
    assert read_scenarios(path)


@pytest.mark.slow
def test_day_of_departures_is_dispatched_correctly_in_virtual_time() -> None:
    path = EXAMPLES / "departures" / "scenario.toml"
    scenario = read_scenarios(path)[0]
    played = play(scenario, path.parent)
    assert check(played.history, scenario) == []
    states = [str(job.state) for job in played.history.jobs]
    assert (states.count("succeeded"), states.count("cancelled"), len(states)) == (881, 13, 894)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_whole_call_centre_and_its_what_ifs_break_no_promise() -> None:
    found = simulate(EXAMPLES / "scenarios" / "call-centre.toml")
    assert not found.violated
    base, more, fewer = found.reports
    assert more.waits[0].total.p50 < base.waits[0].total.p50 < fewer.waits[0].total.p50
