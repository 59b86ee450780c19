"""The judge of notifications: compares providers' arrivals with requests and reports.

The judge knows numbers, channels and times, and shares no code with the system.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.torture.checker import Violation
from tests.torture.notify_providers import Arrival

ANSWER_LOST = "sent, answer lost"
TOLD_MS = 1_000
"""This long after an opt-out was answered, no request may start, by the provider's clock."""


Span = tuple[str, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A notification as requested.

    Attributes:
        number: number in its text.
        recipient: its recipient.
        channel: its only channel.
        due_at: ms UTC.
        part: "steady", "burst" or "leaver".
        urgent: whether it is an OTP or an alert.
    """

    number: int
    recipient: str
    channel: str
    due_at: int
    part: str
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Reported:
    """The system's final report on a notification.

    Attributes:
        status: name of the status.
        reason: the reason; may be empty.
    """

    status: str
    reason: str


@dataclass(kw_only=True, slots=True)
class Case:
    """All evidence for the judge.

    Attributes:
        planned: by number.
        states: by number.
        arrivals: messages at the providers, in order.
        opted_out: when an opt-out was acknowledged, ms UTC, by recipient and channel.
        reported: numbers of those whose delivery report was accepted.
        shaken: periods in which an engine was down: what happened, start and end in ms UTC.
        closed: periods in which a provider's 429 had closed a channel: its name, start and end.
        rates: messages per second that a provider's gate allows.
        ahead: how many messages may be in flight when others become due.
        stood: periods in which the providers themselves were stalled, from and until, ms UTC: what
            they saw start at the end of one may have started at its beginning.
    """

    planned: Mapping[int, Planned]
    states: Mapping[int, Reported]
    arrivals: Sequence[Arrival]
    opted_out: Mapping[tuple[str, str], int] = field(default_factory=dict)
    reported: Collection[int] = ()
    shaken: Sequence[Span] = ()
    closed: Sequence[Span] = ()
    rates: Mapping[str, int] = field(default_factory=dict)
    ahead: int = 0
    stood: Sequence[tuple[int, int]] = ()


def judge(case: Case) -> tuple[list[str], list[Violation]]:
    """Return lines to print, and violations."""
    found = [*_once(case), *_opt_outs(case), *_urgent_first(case), *_rates(case)]
    statuses = Counter(one.status for one in case.states.values())
    lost = sum(one.reason.startswith(ANSWER_LOST) for one in case.states.values())
    came = {one.number for one in case.arrivals}
    unsent = sum(
        one.reason.startswith(ANSWER_LOST) and number not in came
        for number, one in case.states.items()
    )
    lines = [
        f"{len(case.planned)} asked for, {len(case.arrivals)} arrived: "
        + ", ".join(f"{count} {name}" for name, count in sorted(statuses.items())),
        f"{lost} told as {ANSWER_LOST!r}, {unsent} of them did not arrive",
        *_leavers(case),
        *_lateness(case),
        *_bursts(case),
    ]
    return lines, found


def _once(case: Case) -> Iterator[Violation]:
    times = Counter(one.number for one in case.arrivals)
    for number in case.reported:
        if case.states[number].status != "DELIVERED":
            yield Violation("delivered and not reported", f"{number}, state {case.states[number]}")
    for number, planned in case.planned.items():
        told, came = case.states.get(number), times[number]
        where = f"{number} by {planned.channel}, {came} times, told {told}"
        if told is None or told.status == "QUEUED":
            yield Violation("not reported", where)
        elif came > 1:
            yield Violation("sent twice", where)
        elif came == 1 and told.status not in {"SENT", "DELIVERED"}:
            yield Violation("sent and not reported", where)
        elif not came and told.status in {"SENT", "DELIVERED"}:
            if not told.reason.startswith(ANSWER_LOST):
                yield Violation("reported and not sent", where)
        elif not came and (planned.recipient, planned.channel) not in case.opted_out:
            yield Violation("not sent", where)


def _opt_outs(case: Case) -> Iterator[Violation]:
    for one in case.arrivals:
        planned = case.planned[one.number]
        answered_at = case.opted_out.get((planned.recipient, planned.channel))
        if answered_at is None:
            continue
        seen = (start for start, end in case.stood if start <= one.begun <= end)
        late_ms = min(seen, default=one.begun) - answered_at
        if late_ms > TOLD_MS:
            where = f"{one.number} by {one.channel}: begun {late_ms} ms after the answer"
            yield Violation("sent after opt-out", where)


def _leavers(case: Case) -> Iterator[str]:
    after = [
        one.begun - answered_at
        for one in case.arrivals
        if (key := (case.planned[one.number].recipient, one.channel)) in case.opted_out
        and one.begun > (answered_at := case.opted_out[key])
    ]
    stood = max((end - start for start, end in case.stood), default=0)
    yield (
        f"{len(after)} requests began after an opt-out was answered, the last one "
        f"{max(after, default=0)} ms; the providers stood still for {stood} ms at most"
    )


def _urgent_first(case: Case) -> Iterator[Violation]:
    for channel, arrivals in _burst(case).items():
        last = max(
            (n for n, one in enumerate(arrivals) if case.planned[one.number].urgent), default=0
        )
        before = sum(not case.planned[one.number].urgent for one in arrivals[:last])
        if before > case.ahead:
            where = f"{before} others came before the last urgent one by {channel}"
            yield Violation("urgent late", where)


def _rates(case: Case) -> Iterator[Violation]:
    for channel, rate in case.rates.items():
        times = [one.at for one in case.arrivals if one.channel == channel]
        seconds = (times[-1] - times[0]) / 1000 if times else 0
        # Messages in flight when a window starts arrive in the next one.
        if len(times) > rate * (seconds + 1) + case.ahead:
            yield Violation("rate", f"{len(times)} by {channel} in {seconds:.0f} s")


def _lateness(case: Case) -> Iterator[str]:
    came = [(one.due_at, at) for one, at in _steady(case)]
    spans = [*case.shaken, *catching_up(case.shaken, came)]
    late: dict[str, list[int]] = {"all was well": [], "a channel was closed": []}
    late |= {name: [] for name, _, _ in spans}
    for planned, at in _steady(case):
        late[_meanwhile(case, spans, planned)].append(at - planned.due_at)
    for name, found in late.items():
        yield f"steady, while {name}: {len(found)}, due to arrival {percentiles(found)}"
    whole = [one for found in late.values() for one in found]
    yield f"steady, in all: {len(whole)}, due to arrival {percentiles(whole)}"


def _steady(case: Case) -> Iterator[tuple[Planned, int]]:
    for one in case.arrivals:
        planned = case.planned[one.number]
        if planned.part == "steady":
            yield planned, one.at


def catching_up(shaken: Sequence[Span], came: Sequence[tuple[int, int]]) -> Iterator[Span]:
    """Return the time after each outage until its backlog had been sent.

    It ends when 99 of 100 of those that were due in the outage have arrived, however late the later
    ones are: those show the lateness, but not its duration.

    Args:
        shaken: the outages.
        came: when each message was due, and when it arrived.
    """
    for name, begin, end in shaken:
        arrived = sorted(at for due_at, at in came if begin <= due_at <= end)
        until = arrived[int(len(arrived) * 0.99)] if arrived else end
        if until > end:
            yield f"catching up for {(until - end) / 1000:.1f} s after {name}", end, until


def _meanwhile(case: Case, spans: Sequence[Span], planned: Planned) -> str:
    for name, begin, end in spans:
        if begin <= planned.due_at <= end:
            return name
    closed = any(
        begin <= planned.due_at <= end
        for channel, begin, end in case.closed
        if channel == planned.channel
    )
    return "a channel was closed" if closed else "all was well"


def percentiles(late: Sequence[int]) -> str:
    """Return percentiles of the lateness as text."""
    ordered = sorted(late) or [0]
    shares = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    told = [f"{name} {ordered[int(len(ordered) * share)]} ms" for name, share in shares]
    return ", ".join([*told, f"max {ordered[-1]} ms"])


def _burst(case: Case) -> dict[str, list[Arrival]]:
    found: dict[str, list[Arrival]] = defaultdict(list)
    for one in case.arrivals:
        if case.planned[one.number].part == "burst":
            found[one.channel].append(one)
    return found


def _bursts(case: Case) -> Iterator[str]:
    for channel, arrivals in sorted(_burst(case).items()):
        due_at = case.planned[arrivals[0].number].due_at
        seconds = max(arrivals[-1].at - due_at, 1) / 1000
        urgent = [one.at - due_at for one in arrivals if case.planned[one.number].urgent]
        yield (
            f"burst by {channel}: {len(arrivals)} in {seconds:.1f} s, "
            f"{len(arrivals) / seconds:.0f} a second (gate: {case.rates.get(channel)}); "
            f"{len(urgent)} urgent, the last after {max(urgent, default=0) / 1000:.1f} s"
        )
