"""The mail room: its mail server, sender and workers, from start to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import headway as hw
from examples.demo.mail_room.crew import Crew
from examples.demo.mail_room.postbox import Postbox, taking
from examples.demo.mail_room.sender import PROSPECTS, Sender
from examples.lanes.database import Database
from headway.contract.views import JobsQuery
from headway.core.state import FINAL

STILL_S = 20.0
"""Seconds without a finished job after which waiting stops."""
PAGE = 500

Notify = Callable[[str, str], None]


class MailRoom:
    """Letters over HTTP.

    Attributes:
        url: URL of the server.
        smtp: URL of the mail server.
        postbox: The letters that have arrived.
        sender: The producer, with the letters that were accepted.
        crew: The workers.
    """

    def __init__(
        self,
        store: hw.Store,
        url: str,
        smtp: str,
        postbox: Postbox,
        sender: Sender,
        crew: Crew,
    ) -> None:
        self.url = url
        self.smtp = smtp
        self.postbox = postbox
        self.sender = sender
        self.crew = crew
        self._store = store
        self._sending: asyncio.Task[None] | None = None
        self._killing: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Start sending letters and killing a worker at intervals."""
        self._sending = asyncio.create_task(self.sender.run())
        self._killing = asyncio.create_task(self.crew.kill_now_and_then())

    async def finish(self) -> None:
        """Stop sending letters, and wait until the workers have finished those accepted."""
        if self._killing is not None:
            self._killing.cancel()
            with suppress(asyncio.CancelledError):
                await self._killing
        if self._sending is not None:
            self.sender.stop()
            await self._sending
        loop = asyncio.get_running_loop()
        left, until = await self._unfinished(), loop.time() + STILL_S
        while left and loop.time() < until:
            await asyncio.sleep(0.1)
            was, left = left, await self._unfinished()
            if left < was:
                until = loop.time() + STILL_S

    async def _unfinished(self) -> int:
        ids = [letter.job for letter in self.sender.accepted.values()]
        left = 0
        for start in range(0, len(ids), PAGE):
            query = JobsQuery(ids=tuple(ids[start : start + PAGE]), limit=PAGE)
            left += sum(job.state not in FINAL for job in (await self._store.read(query)).rows)
        return left


@asynccontextmanager
async def mail_room(
    store: hw.Store, url: str, folder: Path, seed: int, notify: Notify
) -> AsyncGenerator[MailRoom]:
    """Run a mail room with its mail server and workers until the block ends.

    Args:
        store: The store of its jobs.
        url: URL of the server.
        folder: Folder for logs and the workers' database.
        seed: Random seed.
        notify: Called for each event, with a word and a sentence.
    """
    database = folder / "mail-room.db"
    await asyncio.to_thread(_fill, database)
    postbox = Postbox(seed)
    async with taking(postbox) as port:
        env = {
            "SMTP_HOST": "127.0.0.1",
            "SMTP_PORT": str(port),
            "SMTP_TLS": "no",
            "SMTP_USER": "",
            "LANES_DATABASE": str(database),
        }
        crew = Crew(store, url, env, folder, seed, notify)
        async with crew.at_work():
            smtp = f"smtp://127.0.0.1:{port}"
            yield MailRoom(store, url, smtp, postbox, Sender(url, seed, notify), crew)


def _fill(path: Path) -> None:
    """Write the recipients of letters."""
    people = [
        (number, f"ada{number}@engines{number % 4}.example", f"Ada {number}", "Engines")
        for number in range(1, PROSPECTS + 1)
    ]
    with Database(str(path)).write() as db:
        db.executemany(
            "INSERT INTO prospect (id, email, name, company) VALUES (?, ?, ?, ?)", people
        )
