"""Clients of the measurement: some send one body without pause, one sends at a steady pace."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from multiprocessing.connection import Connection

from bench.hostile.bodies import BODIES, SLOW
from bench.http.client import post

LIMIT_S = 60.0
"""Seconds after which a request counts as lost."""
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
CLAIM = post("/v1/claims", b'{"worker":"steady","lanes":["quiet"],"max":1}')
_SLOW_PIECE = 6_554
_SLOW_EACH_S = 0.1


def flood(pipe: Connection, port: int, name: str, producers: int) -> None:
    """Send a body over several connections until a message arrives on the pipe.

    Send "ready" once all have started, and at the end the number of replies by status, where 0 is a
    connection that the server closed.
    """
    body = b"1" * 1_000_000 if name == SLOW else BODIES[name]()
    request, slow = post("/v1/jobs", body), name == SLOW
    ended = threading.Event()
    statuses: Counter[int] = Counter()
    threads = [
        threading.Thread(target=_send, args=(port, request, ended, statuses, slow), daemon=True)
        for _ in range(producers)
    ]
    for one in threads:
        one.start()
    pipe.send("ready")
    pipe.recv()
    ended.set()
    pipe.send(dict(statuses))


def _send(
    port: int, request: bytes, ended: threading.Event, statuses: Counter[int], slow: bool
) -> None:
    while not ended.is_set():
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as link:
                while not ended.is_set():
                    if slow:
                        _drip(link, request, ended)
                    else:
                        link.sendall(request)
                    statuses[_status(link)] += 1
        except OSError:
            statuses[0] += 1


def _drip(link: socket.socket, request: bytes, ended: threading.Event) -> None:
    for start in range(0, len(request), _SLOW_PIECE):
        link.sendall(request[start : start + _SLOW_PIECE])
        if ended.wait(_SLOW_EACH_S):
            raise ConnectionAbortedError


def _status(link: socket.socket) -> int:
    said = b""
    while b"\r\n\r\n" not in said:
        piece = link.recv(65_536)
        if not piece:
            raise ConnectionResetError
        said += piece
    head, _, rest = said.partition(b"\r\n\r\n")
    left = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]) - len(rest)
    while left > 0:
        piece = link.recv(65_536)
        if not piece:
            raise ConnectionResetError
        left -= len(piece)
    return int(head[9:12])


async def ask_steadily(port: int, request: bytes, *, each_s: float, seconds: float) -> list[float]:
    """Return latencies in ms of requests sent at a fixed pace, without waiting for replies.

    Each latency counts from the time at which the request was due. A client that waits for a slow
    reply before it sends the next request would underestimate the latency.
    """
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    taken: list[float] = []

    async def one(due: float) -> None:
        link = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
        reader, writer = link
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        taken.append(1_000 * (time.perf_counter() - due))
        if not head.startswith(b"HTTP/1.1 200 "):
            message = head.decode()
            raise ConnectionError(message)
        idle.append(link)

    begin = time.perf_counter()
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as asking:
        for place in range(int(seconds / each_s)):
            due = begin + place * each_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            asking.create_task(one(due))
    for _, writer in idle:
        writer.close()
    return taken
