"""Rules for the letters, checked on the record without the engine's code."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from examples.demo.mail_room.kinds import UNKNOWN
from examples.demo.mail_room.sender import Letter, job_id
from headway.contract.views import JobView


@dataclass(frozen=True, kw_only=True, slots=True)
class Letters:
    """The evidence at the end.

    Attributes:
        accepted: Letters that the server accepted, by number.
        asked: Number of letters sent, with or without a reply.
        taken: How often each letter arrived at the mail server, by number.
        jobs: All jobs of the store with their runs, by id.
        dead: Ids of the workers that died.
        faults: Wrong replies.
    """

    accepted: Mapping[int, Letter]
    asked: int
    taken: Mapping[int, int]
    jobs: Mapping[str, JobView]
    dead: Collection[str]
    faults: Sequence[str]

    def job(self, letter: Letter) -> JobView | None:
        """Return the job of a letter."""
        return self.jobs.get(letter.job)


def letter_violations(letters: Letters) -> Iterator[str]:
    """Yield a line for each violation."""
    for rule in RULES:
        yield from rule(letters)


def answers_are_right(letters: Letters) -> Iterator[str]:
    """A letter that was enqueued twice is one job, and no valid letter is refused."""
    yield from (f"enqueue: {fault}" for fault in letters.faults)
    keys = Counter(job.key for job in letters.jobs.values())
    for number in letters.accepted:
        if keys[job_id(number)] != 1:
            yield f"enqueue: letter {number} is {keys[job_id(number)]} jobs"


def each_letter_ends_as_it_should(letters: Letters) -> Iterator[str]:
    """Known types succeed; an unknown type is dead, and its reason says so."""
    for letter in letters.accepted.values():
        job = letters.job(letter)
        if job is None:
            continue  # The rule above has reported it.
        where = (
            f"letter {letter.number} ({letter.type}) is {job.state}: {job.reason or 'no reason'}"
        )
        if letter.type in UNKNOWN:
            why = f"{job.reason} {job.error}"
            if job.state != "dead" or "unknown_kind" not in why or letter.type not in why:
                yield f"unknown type: {where}"
        elif job.state != "succeeded":
            yield f"not done: {where}"


def each_letter_arrives(letters: Letters) -> Iterator[str]:
    """Each accepted letter arrives once, or once more for each worker that died with it."""
    for letter in letters.accepted.values():
        times = letters.taken.get(letter.number, 0)
        job = letters.job(letter)
        if not letter.is_mail or job is None:
            continue
        died = sum(run.outcome == "lost" and run.worker in letters.dead for run in job.runs)
        if times == 0:
            yield f"lost letter: {letter.number} was accepted and has not arrived"
        elif times > 1 + died:
            where = f"{letter.number} arrived {times} times, and {died} workers died holding it"
            yield f"doubled letter: {where}"


def nothing_arrives_that_nobody_sent(letters: Letters) -> Iterator[str]:
    """Every letter at the mail server was enqueued."""
    for number in letters.taken:
        if not 1 <= number <= letters.asked:
            yield f"letter from nowhere: {number} arrived, and was not enqueued"


def lanes_are_first_in_first_out(letters: Letters) -> Iterator[str]:
    """In each lane, first starts are in the order in which letters were accepted."""
    lanes: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, letter in sorted(letters.accepted.items()):
        job = letters.job(letter)
        if job is not None and job.runs and job.runs[0].run == 1:
            lanes[job.lane].append((number, job.runs[0].claimed_at))
    for lane, starts in lanes.items():
        latest = (0, 0)
        for number, claimed_at in starts:
            if claimed_at < latest[1]:
                yield f"order: {lane}: letter {number} was started before {latest[0]}"
            latest = max(latest, (number, claimed_at), key=lambda start: start[1])


RULES: tuple[Callable[[Letters], Iterator[str]], ...] = (
    answers_are_right,
    each_letter_ends_as_it_should,
    each_letter_arrives,
    nothing_arrives_that_nobody_sent,
    lanes_are_first_in_first_out,
)
