"""A worker in a separate process: python -m tests.client.ten_thousand_worker WITNESS."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import headway as hw

LANES = ("calls", "mail", "sms")


def main() -> None:
    witness = os.open(Path(sys.argv[1]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    app = hw.App()

    @app.job()
    async def count(n: int, lane: str, priority: int) -> None:
        # One write for each effect, so that the lines of several processes do not mix.
        os.write(witness, f"{lane} {priority} {n}\n".encode())

    hw.Client().run(app, lanes=",".join(LANES), concurrency=8, lease="5s", grace="10s")


if __name__ == "__main__":
    main()
