"""Waiters of this process, woken by its own commits and by those of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.contract.clock import Clock
from headway.stores.ledger import wakes
from headway.stores.postgres.listening import Listening
from headway.stores.postgres.options import PostgresOptions


class Wakes(wakes.Wakes):
    """Counts what is woken, and wakes those who sleep, in all processes.

    Args:
        clock: tells the store's ms since 1970.

    Attributes:
        speech: makes the statement that tells other processes of a commit, see `Listening.speech`.
    """

    def __init__(self, options: PostgresOptions, clock: Clock) -> None:
        super().__init__(clock)
        self._listening = Listening(
            options, hear=self.wake, miss=self.wake_all, waiting=lambda: self.waiting
        )
        self.speech = self._listening.speech

    def announce(
        self, lanes: Iterable[tuple[str | None, int | None]], *, told: bool = False
    ) -> None:
        """Tell of a commit: first who waits here, then who waits elsewhere.

        Args:
            lanes: each with from when; None for any lane, None for now.
            told: who waits elsewhere was told with the commit.
        """
        given = list(lanes)
        self.wake(given)
        if not told:
            self._listening.tell(given)

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        """Sleep until a lane is woken or the moment has come; see `Store.wait`.

        The first caller that waits may be woken for nothing: what was committed while this process
        did not listen is found by claiming once more.
        """
        self._listening.attend()
        await super().wait(lanes, until_at, seen)

    def close(self, seconds: float = 5.0) -> None:
        """Release the connection, if there is one.

        Args:
            seconds: how long it may take.
        """
        self._listening.close(seconds)
