"""The lobby: where pulls wait, at the cost of one sleep for all who want the same lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from headway.contract.store import Store
from headway.runtime.timing import Timing
from headway.server.pulling.attendance import Attendance
from headway.server.pulling.claiming import Claiming
from headway.server.pulling.known_lanes import KnownLanes
from headway.server.pulling.line import Line, Look, Place
from headway.server.pulling.pull import Pull, Pulled
from headway.server.pulling.wanted import Wanted


class Lobby:
    """Where pulls wait.

    Args:
        store: to claim from.
        timing: clocks and pauses.
    """

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._claiming = Claiming(store, timing)
        self._known = KnownLanes(store, timing, self._stir)
        self._lines: dict[object, tuple[Wanted, Line]] = {}
        self._places: dict[str, tuple[Line, Place]] = {}
        self._keeping_up: asyncio.Task[None] | None = None
        self._patterned = 0
        self._attendance = Attendance(store, timing, self._waited_for)
        self._attending: asyncio.Task[None] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        """How many wait, and do not look just now."""
        return sum(len(line) for _, line in self._lines.values())

    @property
    def giving_back(self) -> int:
        """How many claims whose puller has gone are not given back yet."""
        return self._claiming.under_way

    def waiting_for(self, lane: str) -> int:
        """How many wait for a lane, asked for by its name, those that look just now among them."""
        entries = self._lines.values()
        return sum(line.present for wanted, line in entries if lane in dict(wanted.lanes))

    def meet(self, lanes: Iterable[str]) -> None:
        """Jobs were sent to lanes; those who wait for a pattern that fits a new one now look."""
        for lane in lanes:
            self._known.meet(lane)

    async def among(self, wanted: Wanted) -> tuple[str, ...]:
        """The names of the lanes that are wanted, those that fit a pattern among them.

        Raises:
            StoreError: the store could not answer.
        """
        known = await self._known.names() if wanted.patterns else ()
        return tuple(name for name, _ in wanted.among(known))

    async def pull(self, pull: Pull, seconds: float = 0.0) -> Pulled:
        """Claims; while there is nothing, waits.

        Who waits for the same lanes is served in the order of coming. A worker that numbers its
        pulls has one at a time: a later one sends the earlier home. If it is cancelled, nothing
        stays claimed.

        Args:
            pull: what to claim.
            seconds: how long it may wait.

        Returns:
            The jobs; none when the time is up or the lobby was closed.

        Raises:
            StoreError: the store could not answer.
            InvalidValue: the claim is unusable.
        """
        if pull.request is not None:
            self._send_home(pull.worker)
        if seconds <= 0 or self._is_closed:
            return _pulled(pull, await self._look(pull))
        group = (pull.wanted.group, pull.free > 0)
        line = self._line(group, pull.wanted)
        place = line.place()
        if pull.request is not None:
            self._places[pull.worker] = (line, place)
        try:
            look = await line.serve(place, lambda: self._look(pull), seconds)
            if look is not None:
                return _pulled(pull, look)
            return await self._nothing(pull, line, again=place.is_given_up)
        finally:
            if self._places.get(pull.worker) == (line, place):
                del self._places[pull.worker]
            self._leave(group, line)

    def give_back(self, pulled: Pulled) -> None:
        """Hands back the jobs of a pull, of which nobody has heard.

        Not those of a repeat: the first answer may have been heard.
        """
        if not pulled.is_repeat:
            self._claiming.give_back(pulled.worker, pulled.jobs)

    def close(self) -> None:
        """Sends everybody home; whoever comes from now on does not wait."""
        self._is_closed = True
        for _, line in list(self._lines.values()):
            line.close()

    async def finish(self) -> None:
        """Waits until all that is to be given back is."""
        await self._claiming.finish()

    async def _look(self, pull: Pull) -> Look:
        known: Collection[str] = ()
        if pull.wanted.patterns:
            known = await self._known.names()
        return await self._claiming.look(pull, known)

    async def _nothing(self, pull: Pull, line: Line, *, again: bool) -> Pulled:
        """The answer to one who waited in vain; it may never have asked the store itself."""
        heard = line.heard
        if heard is None and not again:
            return _pulled(pull, await self._look(pull))
        now = self._timing.wall_at()
        if heard is not None:
            now = heard.reply.now + int(1000 * (self._timing.monotonic() - line.heard_at))
        return Pulled(
            worker=pull.worker,
            request=pull.request or 0,
            jobs=(),
            now=now,
            lease_until=None,
            next_at=heard.reply.next_at if heard is not None else None,
            again=again,
        )

    async def _sleep(self, look: Look) -> None:
        # Only now, so that a pull which finds something at once starts nothing beside it.
        self._mind()
        if look.lanes:
            await self._store.wait(look.lanes, look.reply.next_at, look.reply.seen)
        else:
            await asyncio.Event().wait()

    def _stir(self, lane: str) -> None:
        for wanted, line in list(self._lines.values()):
            if wanted.meets(lane):
                line.stir()

    def _send_home(self, worker: str) -> None:
        """Ends the wait of a worker that asks anew."""
        waiting = self._places.pop(worker, None)
        if waiting is not None:
            line, place = waiting
            line.send_home(place)

    def _line(self, group: object, wanted: Wanted) -> Line:
        """The line of those who want the same, made if there is none."""
        entry = self._lines.get(group)
        if entry is not None:
            return entry[1]
        line = Line(self._sleep, self._timing)
        self._lines[group] = (wanted, line)
        self._patterned += bool(wanted.patterns)
        return line

    def _leave(self, group: object, line: Line) -> None:
        """Forgets a line that nobody stands in."""
        entry = self._lines.get(group)
        if entry is not None and entry[1] is line and line.is_idle:
            del self._lines[group]
            self._patterned -= bool(entry[0].patterns)
            self._mind()

    def _waited_for(self) -> Iterable[str]:
        for wanted, line in self._lines.values():
            if line.heard is not None:
                yield from line.heard.lanes
            else:
                yield from (name for name, _ in wanted.among(()))

    def _mind(self) -> None:
        """While somebody waits, the store is told; while it is for a pattern, lanes are listed."""
        loop = asyncio.get_running_loop()
        if self._lines and self._attending is None:
            self._attending = loop.create_task(self._attendance.keep(), name="long polls")
        elif not self._lines and self._attending is not None:
            self._attending.cancel()
            self._attending = None
        if self._patterned and self._keeping_up is None:
            self._keeping_up = loop.create_task(self._known.keep_up(), name="lanes of long polls")
        elif not self._patterned and self._keeping_up is not None:
            self._keeping_up.cancel()
            self._keeping_up = None


def _pulled(pull: Pull, look: Look) -> Pulled:
    reply = look.reply
    return Pulled(
        worker=pull.worker,
        request=look.request,
        jobs=reply.jobs,
        now=reply.now,
        lease_until=reply.lease_until if look.lanes else None,
        next_at=reply.next_at,
        again=reply.again,
        # The store's own note of when a round began means nothing to another claim.
        after={lane: at for lane, at in reply.after.items() if lane},
        is_repeat=look.is_repeat,
    )
