"""The bench reports what it must, whatever the figures are."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.bench import Bench
from bench.board import Board
from bench.child import Child, ChildFailed, child
from bench.goals import AIMS
from bench.http.serving import engine_process
from bench.notebook import Notebook
from bench.places.sqlite import SqliteGround
from bench.report import BEGIN, END, put_into
from bench.scale import Scale
from bench.systems import registry
from bench.systems.system import PythonSystem
from bench.systems.with_headway import Headway, one_wide_gate
from bench.tally import WARM, Report, Tally, compare, delivered
from headway.stores.sqlite import parse_url
from tests.servers.fixtures import missing

ROOT = Path(__file__).parents[2]


def test_missed_goal_says_so_with_its_ratio() -> None:
    notebook = Notebook()
    assert str(notebook.goal("drain", 9.5, least=10)) == "goal missed: drain: 9.50 (aim ≥ 10)"
    assert str(notebook.goal("drain", 10, least=10)) == "goal met: drain: 10.0 (aim ≥ 10)"
    assert str(notebook.goal("p99", 1.21, most=1.2)) == "goal missed: p99: 1.21 (aim ≤ 1.2)"
    assert str(notebook.goal("p99", 1.2, most=1.2)) == "goal met: p99: 1.20 (aim ≤ 1.2)"


def test_lost_and_repeated_jobs_are_counted_separately() -> None:
    assert compare([0, 1, 2], 3) == (0, 0)
    assert compare([0, 0, 2, 2, 2], 3) == (1, 3)
    assert compare([], 3) == (3, 0)


def test_warm_up_job_of_a_worker_is_not_counted() -> None:
    assert compare([WARM, 0, 1], 2) == (0, 0)


def test_workers_are_counted_together_from_the_first_handler_to_the_last() -> None:
    reports = [Report(2_000_000_000, 3_000_000_000, [0, 2]), Report(0, 0, [])]
    reports.append(Report(1_000_000_000, 4_000_000_000, [1, 1]))
    assert delivered(reports, 4) == (3.0, 1, 1)


def test_board_adds_what_all_workers_have_written(tmp_path: Path) -> None:
    with Board(tmp_path / "board") as board, Board(tmp_path / "board") as other:
        tally = Tally(other.places, 3)
        tally(0)
        tally(1)
        board.places[5] = 4
        assert board.wait_for(6, lambda: None)
        assert other.total() == 6


def test_failing_process_is_reported_with_its_reason() -> None:
    with child(_fails) as one, pytest.raises(ChildFailed, match="nothing to be done"):
        one.receive()


def test_process_that_ends_silently_is_no_endless_wait() -> None:
    with child(_says_nothing) as one, pytest.raises(ChildFailed, match="is gone"):
        one.receive()


def _fails(pipe: Child) -> None:
    del pipe
    raise RuntimeError("nothing to be done")


def _says_nothing(pipe: Child) -> None:
    del pipe


@pytest.mark.slow
def test_server_that_logs_more_than_a_pipe_holds_continues(tmp_path: Path) -> None:
    with engine_process(f"sqlite:///{tmp_path / 'bench.db'}") as (port, _):
        link = HTTPConnection("127.0.0.1", port, timeout=30)
        for _ in range(600):  # each is logged with about 150 bytes; a pipe holds 65,536
            link.request("GET", "/nowhere")
            assert link.getresponse().read()
        link.close()


def test_each_goal_compares_with_peers_measured_on_its_store() -> None:
    for store, aims in AIMS.items():
        known = {entry.name for entry in registry.entries(store)}
        for aim in aims:
            assert known >= set(aim.peers), aim.what


def test_two_settings_of_one_system_enqueue_with_their_own_gates(tmp_path: Path) -> None:
    settings = [PythonSystem(Headway("sqlite", gates=gates)) for gates in ((), one_wide_gate())]
    assert len({setting.name for setting in settings}) == 1
    with Bench(SqliteGround(), Scale(), tmp_path, Console(quiet=True), []) as bench:
        gated: list[int] = []
        for setting in settings:
            with bench.fresh() as place:
                bench.enqueue(setting, place, "many", 1)
                options = parse_url(place.url)
                with closing(sqlite3.connect(options.path)) as db:
                    gated += db.execute("SELECT count(*) FROM template").fetchone()
    assert gated == [0, 1]


def test_figures_of_a_page_are_replaced_and_the_rest_is_left(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    put_into(page, _result())
    text = page.read_text()
    assert text.startswith(f"before\n\n{BEGIN}\n")
    assert text.endswith(f"{END}\n\nafter\n")
    assert "| headway | **20.0** (10.0 to 30.0) |" in text
    assert "| rq | **2.00** (2.00 to 2.00; 3 queued) |" in text
    assert "| drain against rq | 10.0 | ≥ 11 | **goal missed** |" in text
    assert "- without streaq: it needs Redis 7 or newer" in text
    assert "old" not in text


def _result() -> dict[str, Any]:
    notebook = Notebook()
    notebook.add("drain of no-op jobs", "headway", "/s", [10, 30, 20], "30 queued")
    notebook.add("drain of no-op jobs", "rq", "/s", [2], "3 queued")
    notebook.goal("drain against rq", 10, least=11)
    store = {
        "store": "redis",
        "title": "Redis",
        "facts": {"server": "Redis 6.2"},
        "peers": [{"name": "rq", "version": "2", "setting": "simple"}],
        "missing": [{"name": "streaq", "why": "it needs Redis 7 or newer"}],
        **notebook.as_json(),
    }
    # The page is rendered from what was written to a file and read back.
    return json.loads(json.dumps({"about": {"python": "3"}, "stores": [store]}))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_quick_bench_measures_and_finds_every_job_done_once(tmp_path: Path) -> None:
    store = _measured(tmp_path, "sqlite", "one,drain,burst,size", "huey,litequeue")
    assert store["faults"] == []
    assert {figure["system"] for figure in store["figures"]} >= {"headway", "huey", "litequeue"}
    assert {goal["what"] for goal in store["goals"]} >= {"drain against huey"}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["postgres", "redis"])
def test_quick_bench_starts_the_server_of_its_store(tmp_path: Path, store: str) -> None:
    found = _measured(tmp_path, store, "drain,locks,signals", "none")
    if not found["figures"]:
        missing(found["missing"])
    assert found["faults"] == []
    assert {figure["system"] for figure in found["figures"]} == {"headway"}


def _measured(folder: Path, store: str, cases: str, peers: str) -> dict[str, Any]:
    out = folder / "figures.json"
    words = ["--quick", "--store", store, "--cases", cases, "--peers", peers]
    subprocess.run(
        [sys.executable, "-m", "bench", *words, "--json", str(out), "--dir", str(folder)],
        check=True,
        cwd=ROOT,
        capture_output=True,
    )
    (found,) = json.loads(out.read_text())["stores"]
    return found
