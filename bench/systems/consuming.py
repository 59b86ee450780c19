"""A process that works for one system and says what its handlers saw."""

from __future__ import annotations

import logging
import os
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from bench.board import Board
from bench.systems.peer import Ending, Peer
from bench.tally import Starts, Tally

CLOCKS = {"monotonic": time.monotonic_ns, "wall": time.time_ns}


def consume(
    pipe: Connection, peer: Peer, url: str, board: Path, place: int, clock: str | None
) -> None:
    """Says that it is ready, begins when it is told, and reports when it is told to end.

    Args:
        pipe: to whoever measures.
        peer: for whom.
        url: of the store.
        board: where it writes how far it is.
        place: its own there.
        clock: which moments of starts are wanted; None for none.
    """
    logging.disable(logging.ERROR)
    places = Board(board).places
    tally = Tally(places, place) if clock is None else Starts(places, place, CLOCKS[clock])
    ending = Ending()
    pipe.send("ready")
    pipe.recv()

    def hear() -> None:
        try:
            pipe.recv()
        except EOFError:
            os._exit(1)
        if ending.told is not None:
            ending.told()
            return
        # Leaves as a killed process does: what it has seen is what counts.
        pipe.send(tally.report())
        os._exit(0)

    threading.Thread(target=hear, daemon=True).start()
    peer.consume(url, tally, ending)
    pipe.send(tally.report())
