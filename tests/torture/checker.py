"""Check from files alone whether the engine kept its guarantees under torture.

Each rule reads the evidence and yields violations. The rules do not know how the engine works: they
know what was requested, what the witness saw, and the final record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.torture.evidence import POOL, RATE, Asked, Beat, Doing, Evidence, Json

STAGED, OFFERED, TIMED = "staged", "offered", "timed"
FINAL = {"succeeded", "dead", "cancelled"}
MS = 1_000_000
DRIFT = 0.01
"""The store's clock may be faster than the witness's by this fraction, while it is corrected."""
SETTLES = {"succeeded", "failed", "died"}


class Violation(NamedTuple):
    """A violation: the rule that was broken, and where."""

    rule: str
    where: str


def check(seen: Evidence) -> list[Violation]:
    """Return all violations of all rules; an empty list if every guarantee was kept."""
    return [found for rule in RULES for found in rule(seen)]


# ---------------------------------------------------------------- nothing lost, nothing invented


def nothing_is_lost(seen: Evidence) -> Iterator[Violation]:
    """A job whose enqueue was acknowledged is on record, once, and has ended."""
    for job, asked in seen.asked.items():
        if asked.acked and job not in seen.jobs:
            yield Violation("lost", f"{job} was acknowledged and is not on record")
    for job in seen.twice:
        yield Violation("lost", f"{job} is on record twice")
    for job, record in seen.jobs.items():
        if record["state"] not in FINAL:
            yield Violation("unfinished", f"{job} is {record['state']} after the drain")


def a_key_names_one_job(seen: Evidence) -> Iterator[Violation]:
    """However often a job was sent with its key, at most one is on record."""
    for key, jobs in seen.same.items():
        found = [job for job in jobs if job in seen.jobs]
        if len(found) > 1:
            yield Violation("key", f"{key!r} names {found}")


def nothing_comes_from_nowhere(seen: Evidence) -> Iterator[Violation]:
    """Nothing is on record or was done that was never requested."""
    fired = {job for job, record in seen.jobs.items() if _entry(seen, record)}
    for job in seen.jobs:
        if job not in seen.asked and job not in fired:
            yield Violation("nowhere", f"{job} is on record and nobody asked for it")
    for one in seen.doings:
        asked = seen.asked.get(one.job)
        if asked is None and one.job in fired:
            continue
        if asked is None:
            yield Violation("nowhere", f"{_name(one)} was done and nobody asked for it")
        elif one.begin < asked.at:
            yield Violation("nowhere", f"{_name(one)} was done before it was asked for")


def ends_are_deserved(seen: Evidence) -> Iterator[Violation]:
    """A job succeeds by its handler or a signal; it dies only of its deadline."""
    doings = seen.doings_of()
    for job, record in seen.jobs.items():
        mine = doings.get(job, [])
        if record["state"] != "cancelled" and job in seen.asked and seen.asked[job].sort == OFFERED:
            continue
        applied = any(answer == "applied" for _, _, answer in seen.signals.get(job, ()))
        handed = any(one.handed is not None for one in mine)
        if record["state"] == "succeeded":
            last = [one for one in mine if one.run == record["run"]]
            done = any(one.outcome == "done" for one in last)
            if not (applied if handed else done):
                yield Violation("undeserved", f"{job} succeeded, and no one finished it")
        elif record["state"] == "dead" and (applied or not _may_die(seen, job, mine)):
            yield Violation("undeserved", f"{job} is dead: {record['reason']}")
        elif record["state"] == "cancelled" and not (
            _was_cancelled(seen, job) or _entry(seen, record)
        ):
            yield Violation("undeserved", f"{job} is cancelled, and nobody asked for that")


def _entry(seen: Evidence, record: Json) -> Json | None:
    """Return the plan's timetable entry that created a job."""
    return seen.plan.get("entries", {}).get(record.get("entry"))


def _was_cancelled(seen: Evidence, job: str) -> bool:
    return any(answer in {"done", "asked"} for _, answer in seen.cancels.get(job, ()))


def _may_die(seen: Evidence, job: str, mine: list[Doing]) -> bool:
    # A kill may fall between the store's commit and the witness's line, so no report of the
    # hand-over is required; it is enough that the job is of a kind that hands over.
    return job in seen.asked and seen.asked[job].hands_over and bool(mine)


# ------------------------------------------------------------------------------------ one at a time


def no_two_runs_at_once(seen: Evidence) -> Iterator[Violation]:
    """At most one handler at a time works on a job; each run starts once; runs only increase."""
    for same in seen.by_run.values():
        if len(same) > 1:
            yield Violation("double start", f"{_name(same[0])} began {len(same)} times")
    for mine in seen.doings_of().values():
        for one, later in pairwise([one for one in mine if not seen.is_shadow(one)]):
            if later.begin < _live_until(seen, one):
                yield Violation("two at once", f"{_name(later)} began while run {one.run} worked")
            if later.run <= one.run:
                yield Violation("fence", f"{_name(later)} began after run {one.run}")


def stale_runs_write_nothing(seen: Evidence) -> Iterator[Violation]:
    """A job is settled once, and never by a run that is no longer the latest."""
    doings = seen.doings_of()
    for job, verdicts in seen.verdicts.items():
        done = [one for one in verdicts if one[3] in SETTLES and one[4] == "done"]
        ends = {run for _, _, run, outcome, _ in done if outcome != "failed"}
        if len(ends) > 1:
            yield Violation("settled twice", f"{job} by the runs {sorted(ends)}")
        for since, _, run, _, _ in done:
            for later in doings.get(job, ()):
                if later.run > run and later.begin < since:
                    yield Violation("stale", f"{job} was settled by run {run} after {later.run}")


def what_was_handed_over_stays_so(seen: Evidence) -> Iterator[Violation]:
    """After a hand-over no other run starts, and the outside world is touched once."""
    for job, mine in seen.doings_of().items():
        calls = sum(len(one.calls) for one in mine)
        if calls > 1:
            yield Violation("called twice", f"{job}: {calls} calls")
        for one in mine:
            if one.handed is None and one.calls:
                yield Violation("called early", f"{_name(one)} called before its hand-over")
        handed_at = {one.run: one.handed for one in mine if one.handed is not None}
        for later in mine:
            if any(run < later.run and at < later.begin for run, at in handed_at.items()):
                yield Violation("restarted", f"{_name(later)} began after a hand-over")
    # Each turn of a cascade hands over.
    turns = {job for job, asked in seen.asked.items() if asked.sort == OFFERED}
    for job in seen.jobs.keys() - turns:
        record = seen.jobs[job]
        handed = [
            run["run"]
            for run in record["runs"]
            if run["handed_at"] is not None and not _stopped_before_reply(seen, job, run)
        ]
        if handed and record["run"] > min(handed):
            yield Violation("restarted", f"{job}: run {record['run']} after {min(handed)}")


def _stopped_before_reply(seen: Evidence, job: str, run: Json) -> bool:
    """Return whether a stop ended the run's handler before it knew of its hand-over.

    Such a handler has not touched the outside world, so its worker asks for another run.
    """
    return run["outcome"] == "snoozed" and any(
        one.outcome == "stopped" and one.handed is None and not one.calls
        for one in seen.by_run[job, run["run"]]
    )


# ----------------------------------------------------------------------------------------- gates


def capacities_hold(seen: Evidence) -> Iterator[Violation]:
    """Handlers together never hold more of a gate, or of a pool's member, than its capacity."""
    held: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for one, name, amount, gate in _uses(seen):
        if gate["kind"] == RATE:
            continue
        place = name
        if gate["kind"] == POOL:
            member = one.members.get(name)
            if member not in gate["members"]:
                yield Violation("no member", f"{_name(one)} got {member!r} of the pool {name}")
                continue
            place = f"{name}/{member}"
        held[place] += [(one.begin, amount), (_given_back_at(seen, one), -amount)]
    for place, steps in held.items():
        capacity = _capacity(seen, place)
        out = 0
        for at, amount in sorted(steps):
            out += amount
            if out > capacity:
                yield Violation("capacity", f"{place}: {out} of {capacity} out at {at}")
                break


def _capacity(seen: Evidence, place: str) -> int:
    name, _, member = place.partition("/")
    gate = seen.plan["gates"][name.partition(":")[0]]
    return gate["members"][member] if member else gate["capacity"]


def _given_back_at(seen: Evidence, one: Doing) -> int:
    """Return the last time at which its permits were certainly still held, ns."""
    if one.offered is not None:
        answered = _answered_at(seen, one)
        return _live_until(seen, one) if answered is None else answered
    if one.handed is None:
        return _live_until(seen, one)
    applied = [since for since, _, answer in seen.signals.get(one.job, ()) if answer == "applied"]
    return max([min(one.handed, _live_until(seen, one)), *applied])


def _live_until(seen: Evidence, one: Doing) -> int:
    """Return the last time at which its handler certainly worked on a live run, ns.

    A deadline counts from the hand-over, which was after the handler's first line. The store's
    reply may arrive after the deadline, or be lost; then the handler learns that it has lost its
    run.
    """
    end = seen.ended_at(one)
    runs = seen.jobs[one.job]["runs"] if one.job in seen.jobs else ()
    if not any(run["run"] == one.run and run["handed_at"] is not None for run in runs):
        return end
    asked = seen.asked.get(one.job)
    offers = asked is not None and asked.sort == OFFERED
    deadline_ms = seen.plan["offer_ms" if offers else "deadline_ms"]
    return min(end, one.begin + int(deadline_ms * MS * (1 - DRIFT)))


def _uses(seen: Evidence) -> Iterator[tuple[Doing, str, int, Json]]:
    for one in seen.doings:
        asked = seen.asked.get(one.job)
        if asked is None or seen.is_shadow(one):
            continue
        if asked.sort == OFFERED:
            yield one, f"tech:{one.candidate}", 1, seen.plan["gates"]["tech"]
        if asked.sort == STAGED and one.stage != "dial":
            continue
        for name, amount, kind in asked.gates:
            yield one, name, amount, seen.plan["gates"][kind]


def rates_hold(seen: Evidence) -> Iterator[Violation]:
    """No window of claim times, or of handlers' starts, has more starts than the rate."""
    claims: dict[str, list[tuple[int, int]]] = defaultdict(list)
    begins: dict[str, list[tuple[int, int]]] = defaultdict(list)
    gates: dict[str, Json] = {}
    for job, record in seen.jobs.items():
        for name, amount, gate in _rates(seen, seen.asked.get(job)):
            gates[name] = gate
            claims[name] += [(run["claimed_at"], amount) for run in record["runs"]]
    for one in seen.doings:
        for name, amount, _ in () if seen.is_shadow(one) else _rates(seen, seen.asked.get(one.job)):
            begins[name].append((one.begin, amount))
    slack_ms = seen.plan.get("start_within_ms", 0) + seen.plan.get("slack_ms", 0)
    for name, gate in gates.items():
        yield from _windows("rate", name, claims[name], gate["limit"], gate["per_ms"])
        shorter = (gate["per_ms"] - slack_ms) * MS
        if shorter > 0:
            yield from _windows("rate begun", name, begins[name], gate["limit"], shorter)


def _rates(seen: Evidence, asked: Asked | None) -> Iterator[tuple[str, int, Json]]:
    for name, amount, kind in asked.gates if asked else ():
        gate = seen.plan["gates"][kind]
        if gate["kind"] == RATE:
            yield name, amount, gate


def _windows(
    rule: str, name: str, starts: list[tuple[int, int]], limit: int, per: int
) -> Iterator[Violation]:
    starts.sort()
    first, inside = 0, 0
    for at, amount in starts:
        inside += amount
        while starts[first][0] <= at - per:
            inside -= starts[first][1]
            first += 1
        if inside > limit:
            yield Violation(rule, f"{name}: {inside} of {limit} up to {at}")
            return


def nothing_starts_early(seen: Evidence) -> Iterator[Violation]:
    """No run is claimed before its job is due."""
    for job, record in seen.jobs.items():
        due_at = seen.asked[job].due_at if job in seen.asked else record["fired_at"]
        for run in record["runs"]:
            if due_at is not None and run["claimed_at"] < due_at:
                yield Violation(
                    "early", f"{job} run {run['run']} by {due_at - run['claimed_at']} ms"
                )


def hours_hold(seen: Evidence) -> Iterator[Violation]:
    """No run with hours is claimed outside them."""
    spans = seen.plan.get("hours", ())
    for job, record in seen.jobs.items():
        if job not in seen.asked or seen.asked[job].sort != TIMED:
            continue
        for run in record["runs"]:
            at = run["claimed_at"]
            if not any(opening <= at < closing for opening, closing in spans):
                yield Violation("hours", f"{job} run {run['run']} was claimed at {at}")


def closed_gates_let_nothing_start(seen: Evidence) -> Iterator[Violation]:
    """No run is claimed while its lane or its kind was certainly closed."""
    claims: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for job, record in seen.jobs.items():
        for run in record["runs"]:
            for name in ("all", f"lane:{record['lane']}", f"kind:{record['kind']}"):
                claims[name].append((run["claimed_at"], job))
    for name, begin, end in seen.closings:
        for at, job in claims.get(name, ()):
            if begin < at < end:
                yield Violation("closed", f"{job} was claimed at {at}; {name}: {begin} to {end}")


# -------------------------------------------------------- cancels, stages, cascades and timetables


def cancels_are_kept(seen: Evidence) -> Iterator[Violation]:
    """An acknowledged cancel ends the job as cancelled; a job not running never starts again."""
    doings = seen.doings_of()
    for job, cancels in seen.cancels.items():
        record = seen.jobs.get(job)
        if record is None or not _was_cancelled(seen, job):
            continue
        if record["state"] != "cancelled":
            yield Violation("cancel", f"{job} was cancelled and is {record['state']}")
        done = [at for at, answer in cancels if answer == "done"]
        for one in doings.get(job, ()):
            if done and one.begin > min(done) and not seen.is_shadow(one):
                yield Violation("cancel", f"{_name(one)} began after its job was cancelled")


def stages_follow_each_other(seen: Evidence) -> Iterator[Violation]:
    """The second stage starts after a run that finished the first; success comes after both."""
    doings = seen.doings_of()
    for job, asked in seen.asked.items():
        if asked.sort != STAGED or job not in seen.jobs:
            continue
        mine = doings.get(job, [])
        for one in mine:
            before = [other for other in mine if other.run < one.run and other.stage == "check"]
            if one.stage == "dial" and not any(other.outcome == "done" for other in before):
                yield Violation("stage", f"{_name(one)} dials, and no run has checked")
        done = any(one.stage == "dial" and one.outcome == "done" for one in mine)
        if seen.jobs[job]["state"] == "succeeded" and not done:
            yield Violation("stage", f"{job} succeeded, and no run has dialled")


def cascades_ask_one_at_a_time(seen: Evidence) -> Iterator[Violation]:
    """One offer at a time; at most one acceptance; the job's final state matches the answers."""
    doings = seen.doings_of()
    offer_ns = seen.plan.get("offer_ms", 0) * MS * (1 - DRIFT)
    for job, asked in seen.asked.items():
        if asked.sort != OFFERED or job not in seen.jobs:
            continue
        answers = seen.answers.get(job, ())
        accepted = sum(said == "accepted" and answer == "applied" for _, _, said, answer in answers)
        state, reason = seen.jobs[job]["state"], seen.jobs[job]["reason"]
        if accepted > 1:
            yield Violation("cascade", f"{job}: {accepted} acceptances were applied")
        if (state == "succeeded") != (accepted == 1) and state != "cancelled":
            yield Violation("cascade", f"{job} is {state}; {accepted} acceptances were applied")
        if state == "dead" and reason != "exhausted":
            yield Violation("cascade", f"{job} is dead: {reason}")
        for one, later in pairwise([one for one in doings.get(job, []) if one.offered]):
            answered = _answered_at(seen, one)
            ended = answered is not None or later.begin >= one.begin + offer_ns
            if not ended or (answered is not None and later.begin < answered):
                yield Violation("cascade", f"{_name(later)} began beside the offer of {one.run}")


def _answered_at(seen: Evidence, one: Doing) -> int | None:
    """Return when the answer that ended an offer was sent, ns."""
    sent = [
        since
        for since, run, _, answer in seen.answers.get(one.job, ())
        if run == one.run and answer == "applied"
    ]
    return min(sent) if sent else None


def entries_fire_once_each_moment(seen: Evidence) -> Iterator[Violation]:
    """A timetable entry fires exactly once at each of its times.

    Fires are created ahead; those after the last one that ran were cancelled with the entry.
    """
    fires: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for record in seen.jobs.values():
        if _entry(seen, record):
            fires[record["entry"]].append((record["fired_at"], record["state"]))
    for name, entry in seen.plan.get("entries", {}).items():
        last = max((at for at, state in fires[name] if state == "succeeded"), default=None)
        if last is None:
            yield Violation("fire", f"{name} never fired")
            continue
        moments = sorted(at for at, _ in fires[name] if at <= last)
        for at, state in fires[name]:
            if at <= last and state != "succeeded":
                yield Violation("fire", f"{name} at {at} is {state}")
        for one, later in pairwise(moments):
            if later - one != entry["every_ms"]:
                yield Violation("fire", f"{name} fired at {one} and next at {later}")


# ------------------------------------------------------------------------------------- the record


def the_record_has_every_run(seen: Evidence) -> Iterator[Violation]:
    """Each run that was seen at work is on the job's record."""
    for one in seen.doings:
        record = seen.jobs.get(one.job)
        if record is not None and one.run not in {run["run"] for run in record["runs"]}:
            yield Violation("no record", f"{_name(one)} was seen at work")


def audits_find_nothing(seen: Evidence) -> Iterator[Violation]:
    """Every audit, at any time, finds no difference; and there were audits."""
    for one in seen.audits:
        for difference in one["differences"]:
            yield Violation("audit", f"at {one['t']}: {difference}")
    least = seen.plan.get("audits", 1)
    if len(seen.audits) < least:
        yield Violation("audit", f"{len(seen.audits)} audits, fewer than {least}")


def no_permit_leaks(seen: Evidence) -> Iterator[Violation]:
    """In the end no permit is held and no job is parked."""
    if not seen.gates:
        yield Violation("leak", "nobody looked at the gates in the end")
    for gate in seen.gates:
        used = 0 if gate["kind"] == RATE else gate["used"]
        if used or gate["holders"] or gate["parked"]:
            yield Violation("leak", f"{gate['name']}: {gate}")


def leases_are_kept(seen: Evidence) -> Iterator[Violation]:
    """If nothing is killed, beats are on time and no lease is lost."""
    if not seen.plan.get("calm"):
        return
    if not seen.beats:
        yield Violation("beats", "nobody beat")
    for worker, beats in seen.beats.items():
        yield from _beats(seen, worker, sorted(beats))
    for job, verdicts in seen.verdicts.items():
        for _, _, run, outcome, verdict in verdicts:
            if verdict == "lost":
                yield Violation("lease", f"{job} run {run}: {outcome} came too late")


def _beats(seen: Evidence, worker: str, beats: list[Beat]) -> Iterator[Violation]:
    for one in beats:
        for job, run in one.lost:
            if not _was_over(seen, job, run, one.at):
                yield Violation("lease", f"{worker} lost {job} run {run} at {one.at}")
    for one, later in pairwise(beats):
        gap_ms = (later.at - one.since) // MS
        if gap_ms >= one.lease_ms:
            yield Violation("beats", f"{worker} was silent for {gap_ms} ms")


def _was_over(seen: Evidence, job: str, run: int, at: int) -> bool:
    """Return whether the run may have ended properly while the beat that names it was in flight."""
    settled = any(
        since <= at and of == run and verdict in {"done", "already", "cancelled"}
        for since, _, of, _, verdict in seen.verdicts.get(job, ())
    )
    signalled = any(
        since <= at and answer == "applied" for since, _, answer in seen.signals.get(job, ())
    )
    return settled or signalled


def _name(one: Doing) -> str:
    return f"{one.job} run {one.run}"


RULES: tuple[Callable[[Evidence], Iterable[Violation]], ...] = (
    nothing_is_lost,
    a_key_names_one_job,
    nothing_comes_from_nowhere,
    ends_are_deserved,
    no_two_runs_at_once,
    stale_runs_write_nothing,
    what_was_handed_over_stays_so,
    capacities_hold,
    rates_hold,
    nothing_starts_early,
    hours_hold,
    closed_gates_let_nothing_start,
    cancels_are_kept,
    stages_follow_each_other,
    cascades_ask_one_at_a_time,
    entries_fire_once_each_moment,
    the_record_has_every_run,
    audits_find_nothing,
    no_permit_leaks,
    leases_are_kept,
)
