"""Rules for the notifications, checked on the inbox and the server's record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

ANSWER_LOST = "sent, answer lost"


@dataclass(frozen=True, kw_only=True, slots=True)
class Issue:
    """A notification that the server has accepted.

    Attributes:
        number: The number in its subject.
        category: "news" or "otp".
        unwanted: Whether its reader had opted out of it before it was sent to the server.
    """

    number: int
    id: str
    reader: str
    category: str
    unwanted: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The evidence at the end.

    Attributes:
        asked: Number of the last issue sent to the server; its reply may be missing.
        issues: Accepted issues, by number.
        notifications: The server's record of each notification, by id.
        taken: How often each issue arrived, by number.
        opted_out: Readers who have opted out of news.
        faults: Duplicates whose reply did not have the first one's id.
    """

    asked: int
    issues: Mapping[int, Issue]
    notifications: Mapping[str, Mapping[str, Any]]
    taken: Mapping[int, int]
    opted_out: Set[str]
    faults: Sequence[str]


def issue_violations(evidence: Evidence) -> Iterator[str]:
    """Yield a line for each violation."""
    for rule in RULES:
        yield from rule(evidence)


def a_duplicate_is_the_first_one(evidence: Evidence) -> Iterator[str]:
    """An issue that was sent twice with the same dedupe key is one notification."""
    for fault in evidence.faults:
        yield f"duplicate: {fault}"


def each_issue_arrives_once(evidence: Evidence) -> Iterator[str]:
    """Each issue that is SENT has arrived once; it may be missing if the reply was lost."""
    for issue in evidence.issues.values():
        known, times = evidence.notifications.get(issue.id), evidence.taken.get(issue.number, 0)
        if known is None:
            yield f"lost: issue {issue.number} was accepted, and the server does not know it"
            continue
        where = f"issue {issue.number} is {known['status']} ({known['reason']}), arrived {times}"
        sent, unsure = known["status"] == "SENT", known["reason"] == ANSWER_LOST
        if known["status"] not in {"SENT", "SKIPPED"}:
            yield f"not done: {where}"
        elif times > int(sent) or (times < int(sent) and not unsure):
            yield f"arrived: {where}"


def what_is_not_wanted_is_not_sent(evidence: Evidence) -> Iterator[str]:
    """No news is sent after an opt-out; nothing else is skipped."""
    for issue in evidence.issues.values():
        known, times = evidence.notifications.get(issue.id), evidence.taken.get(issue.number, 0)
        if issue.unwanted and times:
            yield f"unwanted: issue {issue.number} was sent after {issue.reader} had opted out"
        skipped = known is not None and known["status"] == "SKIPPED"
        if skipped and (issue.category != "news" or issue.reader not in evidence.opted_out):
            yield f"left out: issue {issue.number} for {issue.reader}, who wants it"


def nothing_arrives_that_nobody_sent(evidence: Evidence) -> Iterator[str]:
    """The server was asked to send every issue in the inbox."""
    for number in evidence.taken:
        if not 1 <= number <= evidence.asked:
            yield f"from nowhere: issue {number} arrived"


RULES: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    a_duplicate_is_the_first_one,
    each_issue_arrives_once,
    what_is_not_wanted_is_not_sent,
    nothing_arrives_that_nobody_sent,
)
