from __future__ import annotations

import gc
import subprocess
import sys
from textwrap import dedent

import pytest
import typer

from headway.__main__ import main
from headway.cli import main as cli
from headway.cli.failures import INTERRUPTED

PROGRAM = dedent("""
    import sys

    class Interrupting:
        def find_spec(self, name, path=None, target=None):
            if name == "typer":
                raise KeyboardInterrupt

    sys.meta_path.insert(0, Interrupting())
    from headway.__main__ import main
    main()
""")


def test_interrupt_while_the_command_loads_shows_no_traceback() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (INTERRUPTED, "", "")


def test_garbage_is_collected_while_a_command_runs_but_not_while_it_loads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collects: list[bool] = []
    load = cli.import_module

    def loading(name: str) -> object:
        collects.append(gc.isenabled())
        return load(name)

    def run() -> None:
        collects.append(gc.isenabled())

    monkeypatch.setattr(cli, "import_module", loading)
    command = typer.Typer()
    command.command()(run)
    monkeypatch.setattr("headway.cli.global_options.app", command)
    monkeypatch.setattr(sys, "argv", ["headway", "version"])
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        gc.enable()
    assert (ended.value.code, collects) == (0, [False, True])
