"""The program that a session of the rig runs: it locks its repository and records what it saw.

It shares no code with Headway. The locks (flock) are inherited by all its forks, so each is held
until the last process of the session has exited.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> None:  # noqa: C901  (a script, from top to bottom)
    folder, entry, repository, limit, kind = sys.argv[1:]
    place = Path(folder)

    def write(event: str) -> None:
        line = {"event": event, "entry": entry, "repository": repository, "pid": os.getpid()}
        line |= {"at": time.time(), "session": os.environ["HEADWAY_SESSION_ID"]}
        to = os.open(place / "seen.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(to, json.dumps(line).encode() + b"\n")
        os.close(to)

    def take(name: str) -> bool:
        lock = os.open(place / name, os.O_RDWR | os.O_CREAT, 0o600)
        os.set_inheritable(lock, True)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        return True

    write("begin")
    if not take(f"repository-{repository}"):
        write("two in one repository")
    if not any(take(f"place-{number}") for number in range(int(limit))):
        write("more than the limit")
    if not Path(".git").is_dir():
        write("no clone")
    if kind in {"stubborn", "leaving"}:
        for away in (False, True):
            if os.fork() == 0:
                if away:
                    os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                while True:
                    time.sleep(1000)
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1000)
    time.sleep(0.5)
    write("end")
    sys.exit(3 if kind == "failing" else 0)


if __name__ == "__main__":
    main()
