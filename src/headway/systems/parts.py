"""Parts: what the ready-made systems of one server or worker share."""

from __future__ import annotations

from dataclasses import dataclass

from headway.runtime.timing import REAL, Timing
from headway.systems.directory.database import Directory
from headway.systems.telephony.exchange import Exchange


@dataclass(kw_only=True, slots=True)
class Parts:
    """What the ready-made systems of one server or worker share.

    Attributes:
        directory: what they keep besides jobs.
        exchange: who places calls and sends messages.
        base_url: how the outside world reaches the server; empty until that is known.
        timing: clocks and pauses.
    """

    directory: Directory
    exchange: Exchange
    base_url: str = ""
    timing: Timing = REAL

    async def open(self, base_url: str) -> None:
        """Opens what must be open before the first job or request.

        Args:
            base_url: how the outside world reaches the server.

        Raises:
            StoreUnavailable: the directory cannot be reached.
            SchemaMismatch: its tables are newer than this program, or it may not change them.
        """
        self.base_url = base_url.rstrip("/")
        await self.directory.open()

    async def close(self) -> None:
        """Closes the connections of all."""
        await self.exchange.close()
        await self.directory.close()
