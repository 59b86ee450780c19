"""`headway top` as a command: one frame as text and as JSON, refused options, a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl

import pytest

from headway.cli.commands.top import MOST_CAUSES
from headway.cli.top.rendering import MOST_ERROR
from headway.contract.claims import ClaimRequest
from headway.contract.outcomes import Died
from headway.contract.store import Store
from headway.contract.views import LanesQuery
from headway.stores import open_store
from tests.cli.conftest import Headway
from tests.cli.gates import declare_all
from tests.cli.seeding import URL, claim, enqueue, new_job, settle, with_store
from tests.client.served import Served
from tests.servers.fixtures import made
from tests.servers.process import free_port
from tests.servers.redis import RedisServer
from tests.servers.stores import NewUrl


def seed() -> None:
    """Create gates; a job that died with a secret in its error; one that runs; two that wait."""
    declare_all()
    enqueue(new_job(lane="mail", kind="letter", args=b'{"password":"hunter2"}'))
    (started,) = claim("mail")
    settle(Died(job=started.id, run=started.run, error="no route token=abc123"))
    enqueue(*(new_job(lane="calls", kind="[red]ring", subject="\x1b[2J") for _ in range(3)))

    async def start(store: Store) -> None:
        lanes = (("calls", 1),)
        await store.claim(ClaimRequest(worker="v" * 32, request=1, lanes=lanes, lease_ms=600_000))

    with_store(start)


def test_once_prints_everything_as_plain_text(headway: Headway):
    seed()
    ran = headway("top", "--once")
    assert (ran.code, ran.err) == (0, "")
    for part in (
        "2 waiting",
        "1 running",
        "1 dead",
        "mail",
        "line",
        "sms",
        "[red]ring",
        "no route",
    ):
        assert part in ran.out
    assert "\x1b" not in ran.out
    assert "abc123" not in ran.out


def test_once_prints_the_beginning_of_a_long_error_and_masks_its_secrets(headway: Headway):
    enqueue(new_job(lane="mail"))
    (started,) = claim("mail")
    secret = "x" * (MOST_ERROR - 20) + " token=" + "s" * 50
    settle(Died(job=started.id, run=started.run, error=secret + "y" * 9_000))
    out = headway("top", "--once").out
    assert "xxx token=[hidden]" in out
    assert "ss" not in out
    assert max(map(len, out.splitlines())) < MOST_ERROR + 100


def test_once_prints_the_causes_of_most_waiting_jobs(headway: Headway):
    jobs = [new_job(lane=f"lane{number:02}") for number in range(MOST_CAUSES + 2)]
    enqueue(*jobs, new_job(lane="lane51"))
    lines = headway("top", "--once").out.splitlines()
    assert lines[2] == "! 2 jobs wait in the lane lane51: no live worker serves it"
    assert sum(one.startswith("! ") for one in lines) == MOST_CAUSES
    assert lines[2 + MOST_CAUSES] == "and 2 more"
    assert len(headway("top", "--once", "--json").document["stuck"]) == MOST_CAUSES + 2


def test_once_with_json_is_one_document(headway: Headway):
    seed()
    document = headway("top", "--once", "--json").document
    assert [one["name"] for one in document["lanes"]] == ["calls", "mail"]
    assert document["lanes"][0]["latency"]["starts"] == 1
    assert {one["name"] for one in document["gates"]} == {"line", "sms", "numbers"}
    assert document["stats"]["counts"] == {"waiting": 2, "running": 1, "dead": 1}
    assert sum(one["running"] for one in document["workers"]) == 1
    for worker in document["workers"]:
        assert {"id", "name", "lanes", "seen_at", "lease_until"} <= worker.keys()
    assert [job["kind"] for job in document["running"]] == ["[red]ring"]
    assert len(document["waiting"]) == 2
    assert "hunter2" not in str(document)
    assert document["stuck"] == []


def test_once_prints_the_same_over_a_server_and_its_store(headway: Headway):
    seed()
    over_store = headway("top", "--once", "--json").document
    store = open_store(URL)
    with Served(store) as served:
        ran = headway("top", "--once", "--json", "--server", served.url)
        served.run(store.close())
    # The server is in this process, and logs before the reply is printed.
    over_server = json.loads(ran.out.splitlines()[-1])
    for name in ("gates", "running", "waiting", "dead", "stuck"):
        assert over_server[name] == over_store[name]
    latencies = [
        [lane["latency"]["starts"] for lane in one["lanes"]] for one in (over_store, over_server)
    ]
    assert latencies == [[1, 1], [1, 1]]


def test_top_without_a_terminal_is_refused_and_names_once(headway: Headway):
    seed()
    ran = headway("top")
    assert (ran.code, ran.out) == (2, "")
    assert (
        ran.err == "headway: headway top needs a terminal (--once prints one snapshot and exits)\n"
    )


def test_json_without_once_and_a_store_beside_a_server_are_refused(headway: Headway):
    ran = headway("top", "--json")
    assert (ran.code, "--once" in ran.err) == (2, True)
    ran = headway("top", "--once", "--store", "memory://", "--server", "http://127.0.0.1:1")
    assert (ran.code, "--server" in ran.err) == (2, True)


def test_unreachable_server_or_store_at_the_start_is_an_error(headway: Headway):
    port = free_port()
    ran = headway("top", "--once", "--server", f"http://127.0.0.1:{port}")
    assert (ran.code, ran.out) == (4, "")
    assert f"127.0.0.1:{port}" in ran.err
    assert headway("top", "--once").code == 4


class Screen:
    """A real terminal that runs the program; its output is searched as it arrives."""

    def __init__(self, outer: int) -> None:
        self._outer = outer
        self.drawn = ""

    def until(self, wanted: str) -> None:
        """Read until a text has been drawn; if it never is, the time limit of the test applies."""
        while wanted not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.drawn):
            self.drawn += os.read(self._outer, 65_536).decode(errors="replace")

    def press(self, keys: str) -> None:
        """Press keys, and forget what was drawn before."""
        self.drawn = ""
        os.write(self._outer, keys.encode())


@contextmanager
def terminal(*line: str, **variables: str) -> Iterator[tuple[Screen, subprocess.Popen[bytes]]]:
    outer, inner = pty.openpty()
    ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", *line],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**os.environ, "TERM": "xterm-256color", **variables},
    )
    os.close(inner)
    try:
        yield Screen(outer), process
    finally:
        process.kill()
        process.wait()
        os.close(outer)


COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|4[0-7]|38|48|9[0-7])(?:;[0-9;]*)?m")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_real_terminal_shows_the_store_pauses_a_lane_and_quits(kind: str, new_url: NewUrl):
    url = new_url(kind)

    async def begin(store: Store) -> None:
        await store.enqueue([new_job(lane="mail") for _ in range(3)])

    with_store(begin, url)
    with terminal("top", "--store", url, NO_COLOR="1") as (screen, process):
        screen.until("3 jobs wait in the lane mail: no live worker serves it")
        first = screen.drawn
        screen.press("p")
        screen.until("pause mail?")
        screen.press("lunch\r")
        screen.until("lane:mail is closed until it is opened")
        screen.press("q")
        assert process.wait() == 0
    assert COLOUR.search(first) is None
    (lane,) = with_store(lambda store: store.read(LanesQuery(names=("mail",))), url)
    assert lane.paused


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_leaves_the_terminal_as_it_was(number: signal.Signals):
    seed()
    with terminal("top", "--store", URL) as (screen, process):
        screen.until("mail")
        screen.press("")
        process.send_signal(number)
        # A terminal whose programs have ended cannot be read.
        with pytest.raises(OSError, match="Input/output error"):
            screen.until("nothing more")
        assert process.wait() == 0
    assert "\x1b[?1049l" in screen.drawn


@pytest.mark.slow
def test_real_terminal_shows_the_loss_and_return_of_redis():
    with made(RedisServer) as server:
        url = f"{server.url}?namespace=top"

        async def begin(store: Store) -> None:
            await store.enqueue([new_job(lane="mail")])

        with_store(begin, url)
        with terminal("top", "--store", url) as (screen, process):
            screen.until("mail")
            assert COLOUR.search(screen.drawn)
            screen.press("")
            server.stop()
            screen.until("away: ")
            # Text is drawn once and not redrawn, so nothing that follows may be forgotten.
            screen.press("")
            server.start()
            with_store(begin, url)
            screen.until("1 waiting")
            screen.press("\x03")
            assert process.wait() == 0
