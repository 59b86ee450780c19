"""A worker in Python that pulls over HTTP: `python -m examples.demo.mail_room.clerk`.

Its handlers are those of `examples.lanes`; environment variables name the mail server.
"""

from __future__ import annotations

import os
import socket
import threading

import headway as hw
from examples.lanes.app import app

LANES = "send_email,send_outreach,enrich,notify"
LEASE = "3s"


def main() -> None:
    """Work until SIGTERM, or until the parent process has exited."""
    threading.Thread(target=_tether, daemon=True).start()
    hw.Client().run(
        app,
        lanes=LANES,
        concurrency=8,
        lease=LEASE,
        grace="3s",
        name=f"python-{socket.gethostname()}-{os.getpid()}-",
        unknown="dead",
    )


def _tether() -> None:
    # Nothing is written to this pipe; it is closed when the demo exits, however that happens.
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
