from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from headway.cli.progress import progress, status_text
from headway.cli.terminal import Terminal
from headway.contract.views import StatsView
from tests.cli.conftest import Headway
from tests.cli.seeding import enqueue, new_job


def on_a_terminal(*line: str, columns: str = "100", answer: str = "") -> str:
    """Return what the command draws on a real terminal."""
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", *line],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**os.environ, "COLUMNS": columns, "TERM": "xterm-256color"},
    )
    os.close(inner)
    os.write(outer, answer.encode())
    drawn = b""
    try:
        while chunk := os.read(outer, 65536):
            drawn += chunk
    except OSError:
        # Linux raises this once the last process has closed its end.
        pass
    finally:
        process.wait(30)
        os.close(outer)
    return drawn.decode()


def test_terminal_table_keeps_ids_whole_and_omits_uninformative_columns():
    (made,) = enqueue(new_job())
    drawn = on_a_terminal("jobs", columns="80")
    assert made in drawn
    assert "TENANT" not in drawn


def test_no_job_text_moves_the_cursor_of_a_terminal():
    enqueue(new_job(subject="\x1b[2J\x9b31m", kind="[red]x[/red]"))
    for line in (["jobs"], ["jobs", "--json"]):
        drawn = on_a_terminal(*line, columns="300")
        assert "\x1b[2J" not in drawn
        assert "\x9b" not in drawn
        assert "[red]x[/red]" in drawn


def test_terminal_asks_before_many_jobs_are_cancelled(headway: Headway):
    enqueue(new_job(), new_job())
    drawn = on_a_terminal("cancel", "--lane", "main", answer="n\n")
    assert "cancel 2 jobs?" in drawn
    assert "needs confirmation" in drawn
    drawn = on_a_terminal("cancel", "--lane", "main", answer="y\n")
    assert "2 done" in drawn


def test_terminal_shows_progress_of_long_work(headway: Headway, folder: Path):
    drawn = on_a_terminal("send", "noop", "--count", "3000")
    assert "3000/3000" in drawn
    assert "3000/3000" not in headway("send", "noop", "--count", "3000").err
    drawn = on_a_terminal("export", "--out", "jobs.jsonl")
    assert "export jobs" in drawn


@pytest.mark.slow
def test_terminal_shows_drain_progress_and_keeps_log_lines_whole(headway: Headway, empty_app: str):
    headway("send", "noop", "--count", "200")
    drawn = on_a_terminal("worker", empty_app, "--drain")
    assert "200/200" in drawn
    assert "worker starts" in drawn
    assert "worker stopped" in drawn
    headway("send", "noop", "--count", "200")
    drawn = on_a_terminal("worker", empty_app, "--drain", "--processes", "2")
    assert "200/200" not in drawn
    assert drawn.count("worker stopped") == 2


def test_no_progress_is_drawn_without_a_terminal(capfd):
    with progress(Terminal(json=False), "work", 10) as meter:
        meter(5)
    assert capfd.readouterr() == ("", "")


def test_table_without_a_terminal_has_one_line_per_row_and_no_trailing_space(capfd):
    terminal = Terminal(json=False)
    terminal.table(["A", "B"], [["x\ny", "東京"], ["z" * 500, ""]], empty="nothing")
    lines = capfd.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["A", "B"], ["x\\ny", "東京"], ["z" * 500]]
    assert all(line == line.rstrip() for line in lines)


def test_status_line_shows_states_and_starts_per_second():
    def stats(started: int) -> StatsView:
        return StatsView(
            now=0,
            counts={"waiting": 12_000, "running": 3},
            totals={"started": started},
            identity="",
            epoch=1,
            revision=1,
            clock_ahead_ms=0,
        )

    console = Console(width=200)
    with console.capture() as capture:
        console.print(status_text(stats(150), stats(50), 0.5))
    assert capture.get().strip() == "12,000 waiting  3 running  200/s"
