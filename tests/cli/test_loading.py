from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

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
