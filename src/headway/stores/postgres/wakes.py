"""The waiters of a process, which its own and other processes' commits wake."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.store import Clock
from headway.stores.ledger import wakes
from headway.stores.postgres.listening import Listening
from headway.stores.postgres.options import PostgresOptions


class NotifyingWakes(wakes.Wakes):
    """Wakes waiters in all processes.

    Args:
        clock: returns the store's ms since 1970.

    Attributes:
        make_notice: see `Listening.make_notice`.
    """

    def __init__(self, options: PostgresOptions, clock: Clock) -> None:
        super().__init__(clock)
        self._listening = Listening(
            options,
            on_wake=self._wake_lanes,
            on_missed=self.wake_all,
            on_maybe_missed=self._check,
            waiting=lambda: self.lanes,
        )
        self._to_follow: dict[str, int] = {}
        # Lanes in which a check has woken one caller, while others may sleep.
        self._checked: set[str] = set()
        self.make_notice = self._listening.make_notice

    def announce(
        self, lanes: Iterable[tuple[str | None, int | None]], *, notified: bool = False
    ) -> None:
        """Report a commit to waiters of all processes.

        Args:
            lanes: each with its time; None for any lane, None for now.
            notified: whether other processes were notified with the commit.
        """
        given = list(lanes)
        if not notified:
            self._listening.notify(given)
        self._wake_lanes(given)

    def _wake_lanes(self, lanes: Iterable[tuple[str | None, int | None]]) -> None:
        given = list(lanes)
        self._expect(lane for lane, at in given if lane is not None and at is None)
        self.wake(given)

    def _check(self) -> None:
        lanes = self.lanes
        self._checked |= lanes
        self._expect(lanes)
        self.wake_one_of_each()

    def _expect(self, lanes: Iterable[str]) -> None:
        # Before the wake, because the claims that it causes check this.
        self._to_follow.update(dict.fromkeys(lanes, self.count + 1))

    def follow(self, request: ClaimRequest, reply: ClaimReply) -> None:
        """Wake more if a claim that may have followed a wake was filled.

        A commit wakes only a few waiters, and a check one caller of each lane; there may be more
        jobs than they can take.

        Args:
            reply: shows which wakes preceded the claim.
        """
        if not self._to_follow or reply.again:
            return
        gated = sum(job.gated for job in reply.jobs)
        filled = len(reply.jobs) >= request.n or gated >= request.free
        followed = [
            lane
            for lane, _ in request.lanes
            if (woken := self._to_follow.get(lane)) is not None and (filled or woken <= reply.seen)
        ]
        for lane in followed:
            self._to_follow.pop(lane, None)
        if filled and followed:
            self._listening.notify((lane, None) for lane in followed)
            if sleeping := self._checked.intersection(followed):
                self.wake((lane, None) for lane in sleeping)
        self._checked.difference_update(followed)

    def _attend(self, lanes: Sequence[str]) -> None:
        """Listen for the lanes.

        The first caller that waits in a lane may be woken without need: only another claim can find
        what was committed before this process listened for the lane.
        """
        self._listening.listen_for(lanes)

    def close(self, seconds: float = 5.0) -> None:
        """Close the connection, if there is one."""
        self._listening.close(seconds)
