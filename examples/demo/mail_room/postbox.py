"""A real mail server on a free port, which counts the mail it accepts."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from typing import cast

from aiosmtpd.smtp import SMTP, Envelope

from headway.lab.draws import Draws

SLOW_S = 0.15
"""Maximum delay of the reply to a letter: a worker killed meanwhile never gets it."""


class Postbox:
    """The mail that the server has accepted.

    Attributes:
        taken: How often each letter arrived, by number.
        refused: How often it refused a message temporarily.
    """

    def __init__(self, seed: int, word: str = "Letter", busy: float = 0.0) -> None:
        """Create an empty postbox.

        Args:
            seed: Random seed.
            word: The word before the number in a subject.
            busy: Share of messages that are refused temporarily, 0 to 1.
        """
        self.taken: Counter[int] = Counter()
        self.refused = 0
        self._number = re.compile(rf"{word} (\d+)\b")
        self._draws = Draws(seed)
        self._busy = busy

    async def handle_DATA(  # noqa: N802  (the SMTP library's name)
        self, server: SMTP, session: object, envelope: Envelope
    ) -> str:
        """Accept a message; mail that is not a letter of the demo is not counted."""
        del server, session
        message = message_from_bytes(cast("bytes", envelope.content), policy=policy.default)
        found = self._number.match(str(message["Subject"] or ""))
        if found:
            number = int(found[1])
            if self._draws.chance(self._busy, "busy", number, self.refused):
                self.refused += 1
                return "451 Busy, try again later"
            self.taken[number] += 1
            await asyncio.sleep(SLOW_S * self._draws.unit("slow", number, self.taken[number]))
        return "250 OK"


@asynccontextmanager
async def taking(box: Postbox) -> AsyncGenerator[int]:
    """Run a mail server on loopback until the block ends; yield its port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(box, hostname="localhost", ident="demo", loop=loop), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
