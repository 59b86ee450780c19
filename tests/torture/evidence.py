"""The checker's evidence: the witness's lines and the export, parsed into plain records.

Neither this module nor `checker` imports anything of Headway, so that no bug in the engine can hide
itself.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

Json = dict[str, Any]

POOL, RATE = "pool", "rate"
WAKING_NS = 1_000_000_000
"""For this long after a stop a process may not know what it has lost."""


@dataclass(slots=True)
class Asked:
    """A job as requested by its producer.

    Attributes:
        at: time of the request, ns.
        gates: the name, the amount and the plan's name of the kind for each gate.
        due_at: ms UTC; None for immediately.
        hands_over: whether its handler hands over.
        sort: "staged", "offered" to candidates, or "timed" by hours; otherwise empty.
        acked: whether the enqueue was acknowledged.
    """

    at: int
    gates: list[tuple[str, int, str]]
    due_at: int | None
    hands_over: bool
    sort: str = ""
    acked: bool = False


@dataclass(slots=True)
class Doing:
    """A handler at work on one run, from its first line to its last.

    Attributes:
        job: the job.
        run: the run.
        pid: the pid of its process.
        begin: time of its first line, ns.
        end: time of its last line, ns; None if it never wrote one.
        members: the member chosen in each pool.
        outcome: the handler's outcome at its end.
        handed: when a hand-over was acknowledged, ns.
        calls: when it touched the outside world, ns.
        stage: stage of the run; kinds with stages start with "check", followed by "dial".
        candidate: the candidate to whom the run makes an offer.
        offered: when the offer was acknowledged, ns.
    """

    job: str
    run: int
    pid: int
    begin: int
    members: dict[str, str]
    end: int | None = None
    outcome: str | None = None
    handed: int | None = None
    calls: list[int] = field(default_factory=list)
    stage: str = ""
    candidate: str = ""
    offered: int | None = None


class Beat(NamedTuple):
    """A beat that was answered.

    Attributes:
        since: when the request was sent, ns.
        at: when the reply was received, ns.
        lease_ms: minimum length of the lease from then on.
        lost: runs that the store reported as no longer live.
    """

    since: int
    at: int
    lease_ms: int
    lost: list[tuple[str, int]]


@dataclass(slots=True)
class Evidence:
    """All observations.

    Attributes:
        plan: the rig's description of its gates and leases.
        asked: jobs by id.
        doings: handlers at work, in file order.
        by_run: the same by job and run; more than one is a violation.
        verdicts: for each job, (ns before, ns after, run, outcome, verdict) as its worker saw it.
        signals: for each job, (ns before, ns after, answer) of a final signal.
        answers: for each job, (ns before, run, "accepted" or "declined", reply) of an offer.
        cancels: for each job, (ns after, reply) of a cancel.
        closings: (gate name, from, to), ms UTC, during which it was certainly closed.
        beats: each worker's beats, in order.
        audits: each audit's line.
        stops: when a process was stopped and continued, by pid, ns.
        deaths: when the rig saw that a process was gone, by pid, ns.
        last: the last line of each process, ns.
        gates: final state of the gates.
        jobs: exported jobs by id.
        twice: ids exported more than once.
        torn: lines torn by a kill.
        same: ids under which one job was sent repeatedly with one key, by key.
    """

    plan: Json = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)
    doings: list[Doing] = field(default_factory=list)
    by_run: dict[tuple[str, int], list[Doing]] = field(default_factory=lambda: defaultdict(list))
    verdicts: dict[str, list[tuple[int, int, int, str, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    signals: dict[str, list[tuple[int, int, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    answers: dict[str, list[tuple[int, int, str, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    cancels: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    closings: list[tuple[str, int, int]] = field(default_factory=list)
    beats: dict[str, list[Beat]] = field(default_factory=lambda: defaultdict(list))
    audits: list[Json] = field(default_factory=list)
    stops: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    deaths: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    gates: list[Json] = field(default_factory=list)
    jobs: dict[str, Json] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    torn: int = 0
    same: dict[str, list[str]] = field(default_factory=dict)

    def doings_of(self) -> dict[str, list[Doing]]:
        """Return each job's handlers at work, in the order in which they started."""
        found: dict[str, list[Doing]] = defaultdict(list)
        for one in sorted(self.doings, key=lambda one: one.begin):
            found[one.job].append(one)
        return found

    def ended_at(self, one: Doing) -> int:
        """Return the last time at which a handler had certainly not stopped, ns.

        Without a last line of its own, this is the last line that its process wrote at all: a
        killed process was active up to that line.
        """
        return one.end if one.end is not None else max(one.begin, self.last.get(one.pid, 0))

    def is_shadow(self, one: Doing) -> bool:
        """Return whether its process was stopped meanwhile, or shortly before.

        A process that was stopped for longer than its lease does not notice at once, and no engine
        can prevent its actions until then; what it writes afterwards must be refused.
        """
        end = self.ended_at(one)
        return any(
            since <= end and one.begin <= until + WAKING_NS
            for since, until in self.stops.get(one.pid, ())
        )


def read_evidence(witness: Iterable[bytes], export: Iterable[bytes]) -> Evidence:
    """Read all evidence.

    Args:
        witness: lines of the witness's file.
        export: lines of the export; a header line without an id is skipped.

    Returns:
        The evidence for the rules.
    """
    seen = Evidence()
    for line in witness:
        if not line.strip():
            continue
        try:
            fact = json.loads(line)
        except ValueError:
            seen.torn += 1
            continue
        seen.last[fact["pid"]] = max(seen.last.get(fact["pid"], 0), fact["t"])
        read = _READERS.get(fact["event"])
        if read is not None:
            read(seen, fact)
    for line in export:
        if not line.strip():
            continue
        job = json.loads(line)
        if "id" not in job:
            continue
        if job["id"] in seen.jobs:
            seen.twice.append(job["id"])
        seen.jobs[job["id"]] = job
    return seen


def _plan(seen: Evidence, fact: Json) -> None:
    seen.plan.update(fact["plan"])


def _asked(seen: Evidence, fact: Json) -> None:
    for job, gates, due_at, hands_over, sort in fact["jobs"]:
        uses = [tuple(one) for one in gates]
        seen.asked[job] = Asked(fact["t"], uses, due_at, hands_over, sort)


def _acked(seen: Evidence, fact: Json) -> None:
    for job in fact["jobs"]:
        seen.asked[job].acked = True


def _again(seen: Evidence, fact: Json) -> None:
    first = seen.asked[fact["jobs"][0]]
    for job in fact["jobs"][1:]:
        seen.asked.setdefault(job, replace(first, acked=False))
    seen.same[fact["key"]] = fact["jobs"]


def _begin(seen: Evidence, fact: Json) -> None:
    one = Doing(
        fact["job"],
        fact["run"],
        fact["pid"],
        fact["t"],
        fact["members"],
        stage=fact.get("stage", ""),
        candidate=fact.get("candidate", ""),
    )
    seen.doings.append(one)
    seen.by_run[one.job, one.run].append(one)


def _of(seen: Evidence, fact: Json) -> Doing | None:
    same = [one for one in seen.by_run[fact["job"], fact["run"]] if one.pid == fact["pid"]]
    return same[-1] if same else None


def _end(seen: Evidence, fact: Json) -> None:
    one = _of(seen, fact)
    if one is not None:
        one.end, one.outcome = fact["t"], fact["outcome"]


def _handed(seen: Evidence, fact: Json) -> None:
    one = _of(seen, fact)
    if one is not None:
        one.handed = fact["t"]


def _called(seen: Evidence, fact: Json) -> None:
    one = _of(seen, fact)
    if one is not None:
        one.calls.append(fact["t"])


def _offered(seen: Evidence, fact: Json) -> None:
    one = _of(seen, fact)
    if one is not None:
        one.offered = fact["t"]


def _answered(seen: Evidence, fact: Json) -> None:
    answer = (fact["since"], fact["run"], fact["said"], fact["answer"])
    seen.answers[fact["job"]].append(answer)


def _cancelled(seen: Evidence, fact: Json) -> None:
    seen.cancels[fact["job"]].append((fact["t"], fact["answer"]))


def _closed(seen: Evidence, fact: Json) -> None:
    seen.closings.append((fact["gate"], fact["from_ms"], fact["to_ms"]))


def _verdicts(seen: Evidence, fact: Json) -> None:
    for job, run, outcome, verdict in fact["verdicts"]:
        seen.verdicts[job].append((fact["since"], fact["t"], run, outcome, verdict))


def _signalled(seen: Evidence, fact: Json) -> None:
    seen.signals[fact["job"]].append((fact["since"], fact["t"], fact["answer"]))


def _beat(seen: Evidence, fact: Json) -> None:
    lost = [(job, run) for job, run in fact["lost"]]
    seen.beats[fact["worker"]].append(Beat(fact["since"], fact["t"], fact["lease_ms"], lost))


def _audit(seen: Evidence, fact: Json) -> None:
    seen.audits.append(fact)


def _stopped(seen: Evidence, fact: Json) -> None:
    seen.stops[fact["of"]].append((fact["since"], fact["t"]))


def _died(seen: Evidence, fact: Json) -> None:
    seen.deaths[fact["of"]] = fact["t"]


def _gates(seen: Evidence, fact: Json) -> None:
    seen.gates = fact["gates"]


_READERS = {
    "plan": _plan,
    "asked": _asked,
    "acked": _acked,
    "again": _again,
    "begin": _begin,
    "end": _end,
    "handed": _handed,
    "called": _called,
    "offered": _offered,
    "answered": _answered,
    "cancelled": _cancelled,
    "closed": _closed,
    "settled": _verdicts,
    "signalled": _signalled,
    "beat": _beat,
    "audit": _audit,
    "stopped": _stopped,
    "died": _died,
    "gates": _gates,
}
