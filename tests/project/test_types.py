"""What type checkers find in a program that uses the package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import headway

PROGRAM = """
import headway as hw

app = hw.App("memory://")


@app.job
async def double(job: hw.Job, n: int) -> int:
    return 2 * n


@app.job(lane="mail")
def letter(to: str, *, copies: int = 1) -> str:
    return to * copies


kinds: dict[str, hw.Kind] = {"double": double, "letter": letter}


async def use(job: hw.Job, kind: hw.Kind) -> int:
    sent = await app.send_async(double, n=1)
    app.send(kinds["letter"], to=sent.id)
    app.jobs(kind=letter, states=("dead", hw.State.CANCELLED))
    app.timetable("daily", letter, schedule=hw.Cron("0 3 * * *"), args={"to": "a"})
    text: str = letter("a", copies=2)
    return await double(job, len(text)) + kind("anything")


retries = [hw.Retry("late"), hw.Retry(at="2100-01-01T00:00Z", stage="check")]
retries.append(hw.Retry("429", after="60s", close="provider"))
hw.Retry("429", close="provider")  # wrong
letter(3)  # wrong
double("no job", n=1)  # wrong
number: int = letter("a")  # wrong
"""


@pytest.mark.slow
def test_kinds_have_their_handlers_types_and_can_be_annotated_as_kind(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    source = Path(headway.__file__).parents[1]
    config = {"typeCheckingMode": "strict", "extraPaths": [str(source)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    checker = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(checker, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    wrong = [n for n, line in enumerate(PROGRAM.splitlines()) if line.endswith("# wrong")]
    assert sorted({one["range"]["start"]["line"] for one in found}) == wrong
