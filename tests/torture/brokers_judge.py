"""Judge the pipeline through the brokers: compare what came out of Kafka with what went in.

The judge knows numbers, topics, keys and times, and shares no code with the system.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Literal, NamedTuple, get_args

from tests.torture.checker import Violation
from tests.torture.notify_judge import Span, catching_up, percentiles

Part = Literal["now", "later", "burst", "open"]
"""When a message is due: at once; beyond the horizon, alone or with many others; in a minute that
is being read ahead."""
PARTS: tuple[Part, ...] = get_args(Part)


class Planned(NamedTuple):
    """A message given to the broker at the near end.

    Attributes:
        number: number in its value.
        topic: its topic at the far end, named after its channel.
        due_at: by the machine's clock, ms UTC; for a message due at once, when it was sent.
    """

    number: int
    topic: str
    part: Part
    due_at: int


class Arrival(NamedTuple):
    """A message at the far end.

    Attributes:
        number: number in its value.
        topic: its topic.
        job: its key, which identifies repetitions; None for none.
        attempt: the job's attempt, from its header.
        appended_at: when the broker appended it, ms UTC.
        at: when the consumer received it, ms UTC.
    """

    number: int
    topic: str
    job: str | None
    attempt: int
    appended_at: int
    at: int


class Fault(NamedTuple):
    """A fault of a process, until it worked again.

    Attributes:
        name: name of the process, such as "kafka".
        what: "was killed", by SIGKILL; or "stood still", for longer than its leases.
        publishes: whether the fault may cause a message to be published twice.
    """

    name: str
    what: str
    publishes: bool
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """All evidence for the judge.

    Attributes:
        planned: messages acknowledged by the broker at the near end, by number.
        arrivals: in the order in which the consumer received them.
        faults: in order.
        wanted: faults that must each have occurred at least once: a name, and what.
        ended: processes that exited although they were not killed, with their last output.
        dead_letters: messages in the dead-letter topic.
        refused: rows of the calendar that the store refused.
        through: messages that the leader moved from the calendar into the store.
        late: rows that it found in a minute it had already read.
        states: jobs in the store at the end, by state.
        differences: differences found by the store's audit.
        ahead_ms: how far the store's clock may be ahead of the machine's.
        steady: the period in which messages of all parts were due, ms UTC.
    """

    planned: Mapping[int, Planned]
    arrivals: Sequence[Arrival]
    faults: Sequence[Fault] = ()
    wanted: Collection[tuple[str, str]] = ()
    ended: Sequence[str] = ()
    dead_letters: int = 0
    refused: int = 0
    through: int = 0
    late: int = 0
    states: Mapping[str, int] = field(default_factory=dict[str, int])
    differences: int = 0
    ahead_ms: int = 0
    steady: tuple[int, int] = (0, 0)


def judge(case: Case) -> tuple[list[str], list[Violation]]:
    """Return lines to print, and violations."""
    found = [*_once(case), *_early(case), *_store(case), *_provoked(case)]
    lines = [*_counts(case), *_repeated(case), *_lateness(case)]
    return lines, found


def _by_number(case: Case) -> Mapping[int, Sequence[Arrival]]:
    found: dict[int, list[Arrival]] = defaultdict(list)
    for one in case.arrivals:
        found[one.number].append(one)
    return found


def _once(case: Case) -> Iterator[Violation]:
    came = _by_number(case)
    for number in case.planned.keys() - came.keys():
        yield Violation("lost", f"{case.planned[number]}")
    for number, arrivals in came.items():
        planned = case.planned.get(number)
        if planned is None:
            yield Violation("never sent", f"{arrivals}")
        elif any(one.topic != planned.topic for one in arrivals):
            yield Violation("other topic", f"{planned}: {arrivals}")
        if any(one.job is None for one in arrivals):
            yield Violation("no key", f"{arrivals}")
        elif len({one.job for one in arrivals}) > 1:
            yield Violation("two jobs of one message", f"{arrivals}")
        else:
            yield from _repetitions(case, arrivals)


def _repetitions(case: Case, arrivals: Sequence[Arrival]) -> Iterator[Violation]:
    """Check that each repetition is another attempt, after a fault that allows one."""
    ordered = sorted(arrivals, key=lambda one: one.appended_at)
    for n, (first, later) in enumerate(pairwise(ordered)):
        reason = any(
            one.publishes and one.begin <= later.appended_at and one.end >= first.appended_at
            for one in case.faults
        )
        if not reason:
            yield Violation("twice without a reason", f"{ordered}")
        elif any(one.attempt == later.attempt for one in ordered[: n + 1]):
            yield Violation("twice in one attempt", f"{ordered}")


def _early(case: Case) -> Iterator[Violation]:
    for one in case.arrivals:
        planned = case.planned.get(one.number)
        if planned is not None and one.appended_at < planned.due_at - case.ahead_ms:
            yield Violation("early", f"{planned.due_at - one.appended_at} ms: {planned}, {one}")


def _store(case: Case) -> Iterator[Violation]:
    if case.dead_letters:
        yield Violation("dead letters", f"{case.dead_letters}")
    if case.refused:
        yield Violation("refused rows", f"{case.refused}")
    if case.differences:
        yield Violation("audit", f"{case.differences} differences")
    if {state: count for state, count in case.states.items() if count} != {
        "succeeded": len(case.planned)
    }:
        yield Violation("jobs", f"{dict(case.states)}, of {len(case.planned)} messages")


def _provoked(case: Case) -> Iterator[Violation]:
    """Check that the run provoked what it was meant to: otherwise it proves nothing."""
    done = {(one.name, one.what) for one in case.faults}
    for name, what in sorted(set(case.wanted) - done):
        yield Violation("no fault", f"that {name} {what}")
    for words in case.ended:
        yield Violation("ended by itself", words)
    parts = Counter(one.part for one in case.planned.values())
    beyond = parts["later"] + parts["burst"]
    if beyond and case.through < beyond // 2:
        yield Violation("past the calendar", f"{case.through} of {beyond} came through it")
    if parts["open"] and not case.late:
        yield Violation("not provoked", "no row was written into a minute that was being read")


def _counts(case: Case) -> Iterator[str]:
    parts = Counter(one.part for one in case.planned.values())
    told = ", ".join(f"{parts[part]} {part}" for part in PARTS)
    topics = Counter(one.topic for one in case.arrivals)
    yield f"{len(case.planned)} accepted at the near end: {told}"
    yield f"{len(case.arrivals)} at the far end: " + ", ".join(
        f"{count} {topic}" for topic, count in sorted(topics.items())
    )
    yield (
        f"{case.through} came out of the calendar, {case.late} of its rows were found in a minute "
        f"that had been read; {case.dead_letters} dead letters, {case.refused} refused rows"
    )
    for what, faults in groupby(sorted(case.faults, key=_what), _what):
        yield f"{what}: " + ", ".join(f"{one.name} for {_s(one)} s" for one in faults)


def _what(fault: Fault) -> str:
    return fault.what


def _s(fault: Fault) -> str:
    return f"{(fault.end - fault.begin) / 1000:.0f}"


def _repeated(case: Case) -> Iterator[str]:
    times = Counter(one.number for one in case.arrivals)
    more = Counter(count - 1 for count in times.values() if count > 1)
    again = sum(count * numbers for count, numbers in more.items())
    yield f"{again} repetitions, of {sum(more.values())} messages, each with the key of the first"


def _lateness(case: Case) -> Iterator[str]:
    first: dict[int, Arrival] = {}
    for one in case.arrivals:
        first.setdefault(one.number, one)
    came = [(one, first[n].at) for n, one in case.planned.items() if n in first]
    spans: list[Span] = [(f"{one.name} {one.what}", one.begin, one.end) for one in case.faults]
    spans += list(catching_up(spans, [(planned.due_at, at) for planned, at in came]))
    late: dict[str, list[int]] = {f"undisturbed, {part}": [] for part in PARTS}
    late |= {name: [] for name, _, _ in spans}
    for planned, at in came:
        late[_meanwhile(spans, planned)].append(at - planned.due_at)
    for name, found in late.items():
        if found:
            yield f"{name}: {len(found)}, due to arrival {percentiles(found)}"
    begin, end = case.steady
    steady = [at - one.due_at for one, at in came if begin <= one.due_at < end]
    if steady:
        rate = sum(begin <= at < end for _, at in came) / (end - begin) * 1000
        yield (
            f"while all parts came due, {(end - begin) / 1000:.0f} s, {rate:.0f} a second: "
            f"{percentiles(steady)}"
        )


def _meanwhile(spans: Iterable[Span], planned: Planned) -> str:
    for name, begin, end in spans:
        if begin <= planned.due_at <= end:
            return name
    return f"undisturbed, {planned.part}"
