"""Rules for the sessions, checked on their journal and the repositories.

The order of lines in the journal is the order of events, because each line is one append to the
file. No rule needs a clock finer than a second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

BEGAN, ENDED = "began", "ended"
FIRST = "Begin"
"""Message of a repository's first commit."""


class Line(NamedTuple):
    """A line of the journal.

    Attributes:
        word: "began", "alive" or "ended".
        session: Id of the session, `cron:AUTOMATION:JOB`.
        repository: Name of the repository.
        second: When it was written, in seconds since 1970.
    """

    word: str
    session: str
    repository: str
    second: int

    @classmethod
    def read(cls, text: str) -> Line:
        """Parse a line.

        Raises:
            ValueError: the line has another format.
        """
        word, session, repository, second = text.split(" ")
        return cls(word, session, repository, int(second))

    @property
    def automation(self) -> str:
        """The automation of the session."""
        return self.session.split(":")[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """The evidence at the end.

    Attributes:
        limit: Maximum number of sessions at once.
        stubborn: The automation whose sessions do not end by themselves.
        lines: Lines of the journal, in order.
        commits: Commit messages by repository, newest first.
        sessions: The server's record of each job that was due, by session.
        by_hand: Sessions whose start the server has confirmed.
        periods_ms: Periods of entries with an interval, by automation.
    """

    limit: int
    stubborn: str
    lines: Sequence[Line]
    commits: Mapping[str, Sequence[str]]
    sessions: Mapping[str, Mapping[str, Any]]
    by_hand: Sequence[str]
    periods_ms: Mapping[str, int]

    def words(self) -> dict[str, list[str]]:
        """Return the words of each session in the journal, in order, without `alive`."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for line in self.lines:
            if line.word in {BEGAN, ENDED}:
                found[line.session].append(line.word)
        return dict(found)


def session_violations(written: Written) -> Iterator[str]:
    """Yield a line for each violation."""
    for rule in RULES:
        yield from rule(written)


def each_session_is_on_record(written: Written) -> Iterator[str]:
    """Each session in the journal is known to the server, and ran once."""
    for session, words in written.words().items():
        if session not in written.sessions:
            yield f"unknown: {session} has run, and the server does not know it"
        if words.count(BEGAN) > 1:
            yield f"twice: {session} began {words.count(BEGAN)} times"


def each_session_ends_as_it_should(written: Written) -> Iterator[str]:
    """Each session succeeded and wrote both words; a stubborn one was killed at its timeout.

    A fire may be folded into an earlier session of its automation that had not ended.
    """
    journal = written.words()
    for session, job in written.sessions.items():
        words, where = journal.get(session, []), f"{session} is {job['state']}: {job['reason']}"
        if _is_folded(job):
            if words or not _is_covered(written, session):
                yield f"folded: {where}, due at {job['due_at']}; it wrote {words}"
        elif session.split(":")[1] == written.stubborn:
            if (job["state"], job["reason"]) != ("dead", "timeout") or ENDED in words:
                yield f"not killed: {where}"
        elif job["state"] != "succeeded" or words != [BEGAN, ENDED]:
            yield f"not done: {where}; it wrote {words}"
    for session in written.by_hand:
        if session not in written.sessions:
            yield f"lost: {session} was to be started, and the server does not know it"


def a_repository_has_one_session_at_a_time(written: Written) -> Iterator[str]:
    """Once a session has started in a repository, the session before it writes nothing more."""
    latest: dict[str, str] = {}
    over: set[str] = set()
    for line in written.lines:
        before = latest.get(line.repository)
        if line.session in over:
            yield f"two: {line.session} wrote {line.word!r} after {before} began"
        elif before != line.session:
            latest[line.repository] = line.session
            over |= {before} if before else set()


def no_more_run_than_may(written: Written) -> Iterator[str]:
    """Never more sessions run than the limit; a session runs from its first line to its last."""
    last = {line.session: n for n, line in enumerate(written.lines)}
    running: set[str] = set()
    for n, line in enumerate(written.lines):
        running.add(line.session)
        if len(running) > written.limit:
            yield f"limit: {len(running)} sessions at once when {line.session} wrote {line.word!r}"
        if last[line.session] == n:
            running.discard(line.session)


def each_session_has_one_commit(written: Written) -> Iterator[str]:
    """A repository has one commit for each session that ended in it, in that order."""
    for repository, messages in written.commits.items():
        wanted = [
            f"{line.automation} {line.session}"
            for line in written.lines
            if line.word == ENDED and line.repository == repository
        ]
        if [FIRST, *wanted] != list(reversed(messages)):
            yield f"commits: {repository} has {list(reversed(messages))[1:]}, not {wanted}"


def each_fires_when_it_should(written: Written) -> Iterator[str]:
    """An interval fires once in each period; no session starts before it is due."""
    for line in written.lines:
        job = written.sessions.get(line.session)
        if job is not None and line.word == BEGAN and line.second < job["due_at"] // 1000:
            yield f"early: {line.session} began at {line.second}, due at {job['due_at']}"
    for automation, period_ms in written.periods_ms.items():
        due = sorted(
            job["due_at"]
            for session, job in written.sessions.items()
            if session.split(":")[1] == automation
        )
        # The very first fire is due at once.
        later = due[1:]
        if later and later != list(range(later[0], later[-1] + 1, period_ms)):
            yield f"schedule: {automation} was due at {due}, each {period_ms} ms"


def _is_folded(job: Mapping[str, Any]) -> bool:
    return (job["state"], job["reason"]) == ("cancelled", "folded")


def _is_covered(written: Written, folded: str) -> bool:
    """Return whether an earlier session of the automation had not ended when this one was due."""
    automation, due_at = folded.split(":")[1], written.sessions[folded]["due_at"]
    return any(
        session.split(":")[1] == automation
        and not _is_folded(job)
        and job["due_at"] < due_at <= job["finished_at"]
        for session, job in written.sessions.items()
    )


RULES: tuple[Callable[[Written], Iterator[str]], ...] = (
    each_session_is_on_record,
    each_session_ends_as_it_should,
    a_repository_has_one_session_at_a_time,
    no_more_run_than_may,
    each_session_has_one_commit,
    each_fires_when_it_should,
)
