"""A worker process of one system, which reports what its handlers saw."""

from __future__ import annotations

import logging
import os
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from bench.board import Board
from bench.systems.peer import Control, Peer
from bench.tally import Starts, Tally

CLOCKS = {"monotonic": time.monotonic_ns, "wall": time.time_ns}


def consume(
    pipe: Connection, peer: Peer, url: str, board: Path, place: int, clock: str | None
) -> None:
    """Send "ready" once the queue is open, work after the first message, report after the second.

    Args:
        pipe: Pipe to the measuring process.
        peer: The system.
        url: URL of the store.
        board: File of the progress counters.
        place: Index of this worker's counter.
        clock: Clock for the times of starts; None if they are not needed.
    """
    logging.disable(logging.ERROR)
    places = Board(board).places
    tally = Tally(places, place) if clock is None else Starts(places, place, CLOCKS[clock])

    def start() -> None:
        pipe.send("ready")
        pipe.recv()
        threading.Thread(target=read_commands, daemon=True).start()

    def read_commands() -> None:
        try:
            pipe.recv()
        except EOFError:
            os._exit(1)
        if control.stop is not None:
            control.stop()
            return
        # Exit at once, like a killed process: only executions so far count.
        pipe.send(tally.report())
        os._exit(0)

    control = Control(start)
    peer.consume(url, tally, control)
    pipe.send(tally.report())
