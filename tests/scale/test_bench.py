"""The bench says what it must, whatever the figures are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.notebook import Notebook
from bench.report import BEGIN, END, put_into
from bench.tally import compare

ROOT = Path(__file__).parents[2]


def test_a_missed_goal_says_so_with_its_ratio() -> None:
    notebook = Notebook()
    assert str(notebook.goal("drain", 9.5, least=10)) == "goal missed: drain: 9.50 (aim ≥ 10)"
    assert str(notebook.goal("drain", 10, least=10)) == "goal met: drain: 10.0 (aim ≥ 10)"
    assert str(notebook.goal("p99", 1.21, most=1.2)) == "goal missed: p99: 1.21 (aim ≤ 1.2)"
    assert str(notebook.goal("p99", 1.2, most=1.2)) == "goal met: p99: 1.20 (aim ≤ 1.2)"


def test_what_was_lost_and_what_was_done_twice_is_counted_apart() -> None:
    assert compare([0, 1, 2], 3) == (0, 0)
    assert compare([0, 0, 2, 2, 2], 3) == (1, 3)
    assert compare([], 3) == (3, 0)


def test_the_tables_of_a_page_are_replaced_and_the_rest_is_left(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    notebook = Notebook()
    notebook.add("drain", "headway", "/s", [10, 30, 20], "3 queued")
    put_into(page, {"python": "3"}, notebook)
    text = page.read_text()
    assert text.startswith(f"before\n\n{BEGIN}\n")
    assert text.endswith(f"{END}\n\nafter\n")
    assert "| drain | headway, 3 queued | 20.0/s | 10.0 to 30.0 |" in text
    assert "old" not in text


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_quick_bench_measures_and_finds_every_job_done_once(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    only = [word for name in ("one", "drain", "burst", "size") for word in ("--only", name)]
    subprocess.run(
        [
            *(sys.executable, "-m", "bench", "--quick", *only),
            *("--json", str(out), "--dir", str(tmp_path)),
        ],
        check=True,
        cwd=ROOT,
        capture_output=True,
    )
    result = json.loads(out.read_text())
    assert result["faults"] == []
    assert {figure["system"] for figure in result["figures"]} >= {"headway", "huey", "litequeue"}
    assert {goal["what"] for goal in result["goals"]} >= {"drain against huey"}
