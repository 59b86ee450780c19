"""A telephone carrier that behaves like a real one: calls ring, are busy, are talked, and end.

The end of a call is reported by a webhook, which may be lost, late or sent twice. The carrier keeps
its own records: it sees a call that is dialled twice, and a line that carries more calls than it
has channels.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["unknown", "ringing", "in-progress", "ended"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fate:
    """The drawn outcome of a call.

    Attributes:
        outcome: the outcome in the webhook.
        ring_ms: until it is answered, or ends unanswered.
        talk_ms: of the call itself; 0 for an unanswered one.
        lost: the webhook never comes.
        late_ms: how long after the end of the call the webhook comes.
        twice: it comes a second time.
    """

    outcome: str
    ring_ms: int = 0
    talk_ms: int = 0
    lost: bool = False
    late_ms: int = 0
    twice: bool = False


@dataclass(slots=True, kw_only=True)
class Call:
    """A call as the carrier knows it.

    Attributes:
        ref: under which it was dialled.
        line: the number it is made from.
        began: seconds of the loop's clock.
        ended: seconds of the loop's clock; None while it lasts.
    """

    sid: str
    ref: str
    line: str
    to: str
    fate: Fate
    status: Status
    began: float
    ended: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Webhook:
    """A webhook: this call has ended.

    Attributes:
        event: its id, the same when it comes twice.
        again: it has come before.
    """

    event: str
    call: Call
    again: bool = False


class Carrier:
    """Carries calls on the running event loop, in its time.

    Args:
        channels: how many calls each line carries at once; lines not named carry any number.
        deliver: is given each webhook.

    Attributes:
        calls: every call by its reference.
        live: calls that last, by line.
        peak: the most that lasted at once, by line.
        counts: ends by outcome, and webhooks lost, late and twice.
        violations: what a real carrier's bill would show: a call dialled twice, a line overbooked.
    """

    def __init__(
        self, *, channels: Mapping[str, int], deliver: Callable[[Webhook], Awaitable[object]]
    ) -> None:
        self.channels = dict(channels)
        self.calls: dict[str, Call] = {}
        self.live: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self._deliver = deliver
        self._deliveries: set[asyncio.Task[Any]] = set()
        self._timers: set[asyncio.TimerHandle] = set()

    def dial(self, ref: str, *, line: str, to: str, fate: Fate) -> str:
        """Begin a call.

        Args:
            line: the number it is made from.

        Returns:
            The carrier's id of the call.
        """
        loop = asyncio.get_running_loop()
        sid = f"CA{len(self.calls) + 1:08}"
        if ref in self.calls:
            self.violations.append(f"{ref} was dialled twice")
        call = Call(
            sid=sid, ref=ref, line=line, to=to, fate=fate, status="ringing", began=loop.time()
        )
        self.calls[ref] = call
        self.live[line] += 1
        self.peak[line] = max(self.peak[line], self.live[line])
        if self.live[line] > self.channels.get(line, self.live[line]):
            where = f"{line} carries {self.live[line]} calls on {self.channels[line]} channels"
            self.violations.append(f"{where} with {ref}")
        if fate.talk_ms:
            self._later(fate.ring_ms, lambda: self._answer(call))
        self._later(fate.ring_ms + fate.talk_ms, lambda: self._end(call))
        return sid

    def status(self, ref: str) -> Status:
        """Return the status of a call, as the carrier's API would."""
        call = self.calls.get(ref)
        return "unknown" if call is None else call.status

    async def close(self) -> None:
        """Drop what is still to come; webhooks under way are let through."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._deliveries:
            await asyncio.wait(self._deliveries)

    def _answer(self, call: Call) -> None:
        call.status = "in-progress"

    def _end(self, call: Call) -> None:
        fate = call.fate
        call.status = "ended"
        call.ended = asyncio.get_running_loop().time()
        self.live[call.line] -= 1
        self.counts[fate.outcome] += 1
        if fate.lost:
            self.counts["webhook lost"] += 1
            return
        event = f"{call.sid}.ended"
        self.counts["webhook late"] += bool(fate.late_ms)
        self._later(fate.late_ms, lambda: self._send(Webhook(event=event, call=call)))
        if fate.twice:
            self.counts["webhook twice"] += 1
            again = Webhook(event=event, call=call, again=True)
            self._later(fate.late_ms + 500, lambda: self._send(again))

    def _later(self, delay_ms: int, do: Callable[[], None]) -> None:
        def now() -> None:
            self._timers.discard(timer)
            do()

        timer = asyncio.get_running_loop().call_later(delay_ms / 1000, now)
        self._timers.add(timer)

    def _send(self, webhook: Webhook) -> None:
        async def deliver() -> None:
            await self._deliver(webhook)

        task = asyncio.get_running_loop().create_task(deliver())
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)
