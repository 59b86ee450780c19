"""What type checkers find in a program that uses the package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headway
from tests.docs.pages import all_pages

SOURCE = Path(headway.__file__).parents[1]

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
hw.Rate("provider", 100, per=60)  # wrong
hw.Backoff(base=10)  # wrong
app.lane("mail", lease=30)  # wrong
app.job(timeout=30)(letter)  # wrong
letter.make(due=1_800_000_000, to="a")  # wrong
letter(3)  # wrong
double("no job", n=1)  # wrong
number: int = letter("a")  # wrong
"""


@pytest.mark.slow
def test_kinds_have_their_handlers_types_and_can_be_annotated_as_kind(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    found = check_types(tmp_path, typeCheckingMode="strict")
    wrong = [n for n, line in enumerate(PROGRAM.splitlines()) if line.endswith("# wrong")]
    assert sorted({one["range"]["start"]["line"] for one in found}) == wrong


@pytest.mark.slow
def test_programs_in_the_documentation_have_no_type_errors(tmp_path: Path) -> None:
    folders: list[str] = []
    for page in all_pages():
        for block in page.blocks:
            # Tests take fixtures, whose types pytest knows only at run time.
            if block.language != "python" or not block.file or block.file.startswith("test_"):
                continue
            path = tmp_path / page.name / block.file
            if path.exists():  # the page changes the file
                path = tmp_path / f"{page.name}:{block.line}" / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
            folders.append(path.parent.relative_to(tmp_path).as_posix())
    places = [{"root": folder, "extraPaths": [str(SOURCE)]} for folder in dict.fromkeys(folders)]
    found = check_types(tmp_path, typeCheckingMode="standard", executionEnvironments=places)
    assert [f"{one['file']}: {one['message']}" for one in found] == []


def check_types(folder: Path, **config: object) -> list[dict[str, Any]]:
    """Return what the type checker reports about the programs in a folder."""
    config = {"extraPaths": [str(SOURCE)], **config}
    (folder / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    checker = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(checker, cwd=folder, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["generalDiagnostics"]
