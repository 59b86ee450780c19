"""An app whose module is loaded in a handler's process only once the test has opened a pipe."""

from __future__ import annotations

import os
from pathlib import Path

import headway as hw

GATE = "HEADWAY_TEST_GATE"

app = hw.App("memory://")

if GATE in os.environ:
    Path(os.environ[GATE]).read_bytes()


@app.job(processes=True, timeout="12s", retry=hw.Backoff(attempts=1))
def quick() -> str:
    return "done"
