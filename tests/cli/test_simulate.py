from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Headway

SCENARIO = """
name = "two lines"
seed = 1
start = "2026-03-02T09:00:00Z"

[gates.lines]
kind = "slots"
capacity = 2

[kinds.call]
lane = "calls"
gates = ["lines"]
service = "1s"

[[arrivals]]
name = "backlog"
kind = "call"
backlog = 20

[[workers]]
name = "dialler"
lanes = ["calls"]
concurrency = 10
"""


@pytest.fixture(autouse=True)
def scenario(folder: Path) -> None:
    folder.joinpath("two.toml").write_text(SCENARIO)


def test_scenario_prints_the_same_each_time(headway: Headway):
    ran = headway("simulate", "two.toml", "--json")
    assert ran.code == 0
    (report,) = ran.document["reports"]
    assert report["name"] == "two lines"
    assert headway("simulate", "two.toml", "--json").out == ran.out
    assert "two lines" in headway("simulate", "two.toml").out


def test_plots_are_drawn_on_request(headway: Headway, folder: Path):
    ran = headway("simulate", "two.toml", "--out", "plots", "--plots", "svg")
    assert ran.code == 0
    drawn = sorted(folder.joinpath("plots").iterdir())
    assert drawn
    assert {file.suffix for file in drawn} == {".svg"}
    assert all(file.name in ran.err for file in drawn)


def test_failures_of_simulated_jobs_are_only_in_the_report(
    headway: Headway, folder: Path, caplog: pytest.LogCaptureFixture
):
    failing = 'retry = { attempts = 2 }\noutcomes = { busy = { share = 1, then = "retry" } }\n'
    text = SCENARIO.replace('service = "1s"\n', failing)
    folder.joinpath("two.toml").write_text(text)
    (report,) = headway("simulate", "two.toml", "--json").document["reports"]
    assert report["kinds"][0]["dead"] == 20
    assert caplog.records == []


def test_folder_that_cannot_be_created_is_named_before_the_scenario_is_played(
    headway: Headway, folder: Path
):
    folder.joinpath("plots").write_text("a file")
    for place in ("plots", "plots/of/today"):
        ran = headway("simulate", "two.toml", "--out", place)
        assert (ran.code, ran.out) == (2, "")
        assert f"the folder {place} cannot be created" in ran.err


@pytest.mark.parametrize(
    ("text", "said"), [("name = ", "two.toml"), ("[gates.x]\nkind = 'door'", "two.toml")]
)
def test_bad_scenario_is_an_error_with_its_file(
    headway: Headway, folder: Path, text: str, said: str
):
    folder.joinpath("two.toml").write_text(text)
    ran = headway("simulate", "two.toml")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert headway("simulate", "nowhere.toml").code == 2
