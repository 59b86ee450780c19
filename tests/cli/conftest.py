"""The command, called in this process on real files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import call


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """The output and the exit code of a call."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Return the only JSON document on standard output."""
        return json.loads(self.out)


Headway = Callable[..., Ran]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty working folder, no settings, and a zone that does not depend on the machine."""
    for name in [name for name in os.environ if name.startswith("HEADWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWAY_ZONE", "Europe/Berlin")
    monkeypatch.setenv("HEADWAY_AUTHOR", "the tester")
    return tmp_path


@pytest.fixture
def empty_app(folder: Path, request: pytest.FixtureRequest) -> str:
    """Write an App without kinds of its own, and return the name of its file."""
    # In one process, a module's name belongs to one file.
    file = f"{request.module.__name__.rpartition('.test_')[2]}_empty.py"
    folder.joinpath(file).write_text("import headway as hw\napp = hw.App()\n")
    return file


@pytest.fixture
def headway(capfd: pytest.CaptureFixture[str]) -> Headway:
    """Return a function that calls the command as the console script does."""

    def run(*arguments: str) -> Ran:
        capfd.readouterr()
        code = call(arguments)
        printed = capfd.readouterr()
        return Ran(code=code, out=printed.out, err=printed.err)

    return run
