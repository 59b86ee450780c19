"""The outside world of a scenario: what handlers do, a phone carrier, and its signals."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from headway.contract.signals import Decided, Signal, SignalResult
from headway.contract.store import Store
from headway.lab.draws import Draws
from headway.lab.scenario import HandOverTable, KindTable, OutcomeTable, Scenario
from headway.runtime.handler_results import Dead, Ended, Retry, Running, Snooze, Unknown
from headway.runtime.job import Job
from headway.runtime.reconciliation import Awaited
from headway.runtime.timing import Timing

_Status = Literal["unknown", "running", "ended"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnOutcome:
    """The drawn outcome of a call.

    Attributes:
        talk_ms: how long it lasts.
        lost: whether the webhook never arrives.
        late_ms: delay of the webhook after the end of the call.
        twice: whether the webhook arrives twice.
    """

    talk_ms: int = 0
    lost: bool = False
    late_ms: int = 0
    twice: bool = False


class Carrier:
    """A simulated phone carrier, on the running event loop and its clock.

    Args:
        channels: maximum number of concurrent calls of each line; other lines have no limit.
        deliver: delivers a webhook; called with the reference of the call that has ended.

    Attributes:
        live: number of current calls by line.
        violations: what a real carrier's bill would show: calls dialled twice, lines overbooked.
    """

    def __init__(
        self, *, channels: Mapping[str, int], deliver: Callable[[str], Coroutine[Any, Any, object]]
    ) -> None:
        self.channels = dict(channels)
        self.live: Counter[str] = Counter()
        self.violations: list[str] = []
        self._status: dict[str, _Status] = {}
        self._deliver = deliver
        self._deliveries: set[asyncio.Task[Any]] = set()
        self._timers: set[asyncio.TimerHandle] = set()

    def dial(self, ref: str, *, line: str, outcome: DrawnOutcome) -> None:
        """Start a call from a line."""
        if ref in self._status:
            self.violations.append(f"{ref} was dialled twice")
        self._status[ref] = "running"
        self.live[line] += 1
        if self.live[line] > self.channels.get(line, self.live[line]):
            where = f"{line} carries {self.live[line]} calls on {self.channels[line]} channels"
            self.violations.append(f"{where} with {ref}")
        self._later(outcome.talk_ms, lambda: self._end(ref, line, outcome))

    def status(self, ref: str) -> _Status:
        """Return the status of a call, as a carrier's API would."""
        return self._status.get(ref, "unknown")

    async def close(self) -> None:
        """Drop all pending events, and wait for the webhooks that are being delivered."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._deliveries:
            await asyncio.wait(self._deliveries)

    def _end(self, ref: str, line: str, outcome: DrawnOutcome) -> None:
        self._status[ref] = "ended"
        self.live[line] -= 1
        if outcome.lost:
            return
        self._later(outcome.late_ms, lambda: self._send(ref))
        if outcome.twice:
            self._later(outcome.late_ms + 500, lambda: self._send(ref))

    def _later(self, delay_ms: int, do: Callable[[], None]) -> None:
        def now() -> None:
            self._timers.discard(timer)
            do()

        timer = asyncio.get_running_loop().call_later(delay_ms / 1000, now)
        self._timers.add(timer)

    def _send(self, ref: str) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver(ref))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)


_SUCCESS = {"succeeded": OutcomeTable(share=1.0)}
_DECIDED = {"succeed": Decided.SUCCEEDED, "retry": Decided.RETRY, "die": Decided.DEAD}

_Handler = Callable[..., Coroutine[Any, Any, object]]


class OutsideWorld:
    """Simulates the outside world of a scenario.

    Args:
        store: receives the signals directly, as from a provider's webhook.
        timing: clock of the handlers.

    Attributes:
        carrier: carries the calls that were handed over.
        outcomes: number of attempts by (kind, outcome), and of signals lost, late, sent twice or
            ignored.
    """

    def __init__(self, scenario: Scenario, store: Store, timing: Timing) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self._scenario = scenario
        self._store = store
        self._timing = timing
        self._draws = Draws(scenario.seed)
        self._kinds: dict[str, str] = {}
        self.carrier = Carrier(channels=_channels(scenario), deliver=self._deliver)

    def handler(self, kind: str, arguments: list[str], dead: Callable[[], bool]) -> _Handler:
        """Return the handler of a kind: an async function of the job and these arguments by name.

        Args:
            dead: returns whether the handler's process has died; it then stops without effect.
        """
        table = self._scenario.kinds[kind]

        async def handle(job: Job, **args: object) -> object:
            service_ms = table.service.draw(self._unit(kind, job, "service"), args)
            if service_ms:
                await self._timing.pause(service_ms / 1000)
            if dead():
                raise asyncio.CancelledError
            word, outcome = self._outcome(kind, table, job.id, job.run)
            if table.hand_over is None:
                self.outcomes[kind, word] += 1
                return _conclude(word, outcome)
            await job.hand_over(job.ref, timeout=timedelta(milliseconds=table.hand_over.timeout))
            self.outcomes[kind, word] += 1
            self._begin(kind, table.hand_over, job, args)
            return None

        signature = [
            inspect.Parameter("job", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Job)
        ]
        signature += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Any)
            for name in arguments
        ]
        handle.__signature__ = inspect.Signature(signature)
        handle.__annotations__ = {"job": Job, **dict.fromkeys(arguments, Any)}
        return handle

    async def ask(self, awaited: Awaited) -> Running | Ended | Unknown:
        """Reconcile a job that awaits too long with the carrier."""
        match self.carrier.status(awaited.ref):
            case "unknown":
                return Unknown()
            case "ended":
                word, outcome = self._outcome(
                    awaited.kind,
                    self._scenario.kinds[awaited.kind],
                    awaited.id,
                    awaited.run,
                )
                self.outcomes[awaited.kind, "ended when asked"] += 1
                return Ended(final=_DECIDED[outcome.then].value, reason=word)  # pyright: ignore[reportArgumentType]  (one of the three words)
            case _:
                self.outcomes[awaited.kind, "still running when asked"] += 1
                return Running(timedelta(minutes=5))

    def _begin(
        self, kind: str, hand_over: HandOverTable, job: Job, args: Mapping[str, object]
    ) -> None:
        _, outcome = self._outcome(kind, self._scenario.kinds[kind], job.id, job.run)
        length = outcome.length or hand_over.length
        lost = self._unit(kind, job, "lost") < hand_over.lost
        late_ms = 0
        if self._unit(kind, job, "late") < hand_over.late:
            late_ms = hand_over.late_by.draw(self._unit(kind, job, "late by"), args)
        twice = not lost and self._unit(kind, job, "twice") < hand_over.duplicate
        for word, happens in (("lost", lost), ("late", late_ms and not lost), ("twice", twice)):
            if happens:
                self.outcomes[kind, f"signal {word}"] += 1
        self._kinds[job.ref] = kind
        self.carrier.dial(
            job.ref,
            line=self._line(job),
            outcome=DrawnOutcome(
                talk_ms=length.draw(self._unit(kind, job, "length"), args),
                lost=lost,
                late_ms=late_ms,
                twice=twice,
            ),
        )

    def _line(self, job: Job) -> str:
        """Return the pool member whose permit is kept until the job settles, or ""."""
        for use in self._scenario.kinds[job.kind].gates:
            member = job.permits.get(use.gate, "")
            if member and use.hold == "settled":
                return f"{use.gate}/{member}"
        return ""

    async def _deliver(self, ref: str) -> None:
        kind = self._kinds[ref]
        job, _, run = ref.rpartition(":")
        word, outcome = self._outcome(kind, self._scenario.kinds[kind], job, int(run))
        reply = await self._store.signal(
            Signal(
                key=ref,
                event=f"{ref}.ended",
                decided=_DECIDED[outcome.then],
                after_ms=outcome.after,
                reason=word,
            )
        )
        if reply.answer is SignalResult.LATE:
            self.outcomes[kind, "signal ignored"] += 1

    def _outcome(self, kind: str, table: KindTable, job: str, run: int) -> tuple[str, OutcomeTable]:
        outcomes = table.outcomes or _SUCCESS
        weights = {word: outcome.share for word, outcome in outcomes.items()}
        word = self._draws.choose(weights, "outcome", kind, job, run)
        return word, outcomes[word]

    def _unit(self, kind: str, job: Job, what: str) -> float:
        return self._draws.unit(what, kind, job.id, job.run)


def _channels(scenario: Scenario) -> dict[str, int]:
    return {
        f"{name}/{member}": capacity
        for name, table in scenario.gates.items()
        for member, capacity in table.spec(name).members
    }


def _conclude(word: str, outcome: OutcomeTable) -> object:
    after = None if outcome.after is None else timedelta(milliseconds=outcome.after)
    match outcome.then:
        case "succeed":
            return None
        case "retry":
            raise Retry(word, after=after)
        case "die":
            raise Dead(word)
        case "snooze":
            return Snooze(after=after or timedelta(minutes=1))
