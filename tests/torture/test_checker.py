"""A checker that has never failed proves nothing: it must find each planted fault."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.torture.checker import check
from tests.torture.evidence import read_evidence

Json = dict[str, Any]
SECOND = 1_000_000_000
PLAN: Json = {
    "gates": {
        "lock": {"kind": "slots", "capacity": 1},
        "budget": {"kind": "slots", "capacity": 3},
        "lines": {"kind": "pool", "members": {"one": 1, "two": 2}},
        "pace": {"kind": "rate", "limit": 2, "per_ms": 1000},
        "tech": {"kind": "slots", "capacity": 1},
    },
    "deadline_ms": 4_000,
    "start_within_ms": 100,
    "calm": True,
    "audits": 1,
    "hours": [[0, 2_500], [3_500, 5_000]],
    "entries": {"tick": {"every_ms": 1_000}},
    "offer_ms": 2_000,
}
SORTS = {"staged": "staged", "offered": "offered", "timed": "timed"}


class History:
    """The evidence that a correct engine would leave behind."""

    def __init__(self) -> None:
        self.witness: list[Json] = []
        self.jobs: dict[str, Json] = {}

    def note(self, t: float, event: str, pid: int = 1, **facts: Any) -> Json:
        fact = {"t": int(t * SECOND), "pid": pid, "event": event, **facts}
        self.witness.append(fact)
        return fact

    def ask(self, job: str, gates: list[Any], due_at: int | None = None) -> None:
        sort = SORTS.get(job, "")
        hands_over = job in {"call", "silent", "stopped"}
        self.note(0.0, "asked", pid=9, jobs=[[job, gates, due_at, hands_over, sort]])
        self.note(0.1, "acked", pid=9, jobs=[job])
        self.record(job)

    def record(self, job: str, **facts: Any) -> None:
        self.jobs[job] = {
            "id": job,
            "state": "succeeded",
            "run": 0,
            "reason": "",
            "kind": "work",
            "lane": "work",
            "entry": None,
            "fired_at": None,
            "runs": [],
            **facts,
        }

    def claim(self, job: str, t: float, *, handed: bool = False) -> None:
        record = self.jobs[job]
        record["run"] += 1
        at = int(t * 1000)
        run = {"run": record["run"], "claimed_at": at, "handed_at": None, "outcome": ""}
        record["runs"].append(run)
        if handed:
            record["runs"][-1]["handed_at"] = at + 10

    def begin(self, job: str, t: float, pid: int = 1, **members: str) -> None:
        self.claim(job, t)
        self.note(t, "begin", pid, job=job, run=self.jobs[job]["run"], members=members)

    def begin_stage(self, job: str, t: float, stage: str) -> None:
        self.begin(job, t)
        self.witness[-1]["stage"] = stage
        self.note(t + 0.1, "end", job=job, run=self.jobs[job]["run"], outcome="done")

    def offer(self, job: str, t: float, candidate: str) -> None:
        self.claim(job, t, handed=True)
        run = self.jobs[job]["run"]
        self.note(t, "begin", job=job, run=run, members={}, candidate=candidate)
        self.note(t + 0.1, "offered", job=job, run=run)
        self.note(t + 0.1, "end", job=job, run=run, outcome="done")

    def answer(self, job: str, t: float, said: str, answer: str = "applied") -> None:
        run = self.jobs[job]["run"]
        facts = {"since": int(t * SECOND), "run": run, "said": said, "answer": answer}
        self.note(t + 0.05, "answered", pid=4, job=job, **facts)

    def end(self, job: str, t: float, pid: int = 1) -> None:
        run = self.jobs[job]["run"]
        self.note(t, "end", pid, job=job, run=run, outcome="done")
        self.note(t + 0.02, "settled", pid, **settled(t, [job, run, "succeeded", "done"]))

    def find(self, event: str, job: str | None = None, nth: int = 0) -> Json:
        found = [
            fact
            for fact in self.witness
            if fact["event"] == event and (job is None or fact.get("job") == job)
        ]
        return found[nth]

    def drop(self, fact: Json) -> None:
        self.witness.remove(fact)

    def violated(self) -> set[str]:
        lines = [json.dumps(fact).encode() for fact in self.witness]
        export = [
            b'{"format": "an export"}',
            *(json.dumps(job).encode() for job in self.jobs.values()),
        ]
        return {found.rule for found in check(read_evidence(lines, export))}


def settled(t: float, *verdicts: list[Any]) -> Json:
    return {"since": int((t + 0.01) * SECOND), "verdicts": list(verdicts)}


def vary(h: History) -> None:
    """Add stages, offers, hours, a stop, a cancel, a timetable and a closed lane."""
    h.ask("staged", [])
    h.begin_stage("staged", 1.0, "check")
    h.begin_stage("staged", 1.5, "dial")
    h.ask("timed", [])
    h.begin("timed", 4.0)
    h.end("timed", 4.1)
    h.ask("offered", [])
    h.offer("offered", 1.0, "ann")
    h.answer("offered", 1.5, "declined")
    h.offer("offered", 2.0, "bob")
    h.offer("offered", 4.5, "cleo")
    h.answer("offered", 5.0, "accepted")
    h.answer("offered", 5.2, "accepted", "already")
    h.ask("stopped", [])
    stop_before_the_reply(h, "stopped", 8.0)
    h.ask("unwanted", [])
    h.note(0.2, "cancelled", pid=5, job="unwanted", answer="done")
    h.jobs["unwanted"]["state"] = "cancelled"
    for number in range(3):
        h.record(f"fire{number}", entry="tick", fired_at=1_000 * number)
        h.begin(f"fire{number}", number + 0.1)
        h.end(f"fire{number}", number + 0.2)
    h.record("ahead", entry="tick", fired_at=3_000, state="cancelled")
    h.note(8.0, "closed", pid=5, gate="lane:work", from_ms=7_300, to_ms=7_900)


def good() -> History:
    h = History()
    h.note(0.0, "plan", pid=9, plan=deepcopy(PLAN))
    h.ask("plain", [])
    h.ask("first", [["lock:a", 1, "lock"], ["budget", 2, "budget"]], due_at=900)
    h.ask("second", [["lock:a", 1, "lock"], ["budget", 2, "budget"]])
    for name in ("p1", "p2", "p3"):
        h.ask(name, [["lines", 1, "lines"]])
    for name in ("r1", "r2", "r3"):
        h.ask(name, [["pace", 1, "pace"]])
    h.ask("crashed", [])
    h.ask("call", [["lock:b", 1, "lock"]])
    h.ask("after", [["lock:b", 1, "lock"]])
    h.ask("silent", [])
    h.begin("plain", 0.5)
    h.end("plain", 0.6)
    h.begin("first", 1.0)
    h.end("first", 1.5)
    h.begin("second", 1.6, pid=2)
    h.end("second", 1.7, pid=2)
    h.begin("p1", 1.0, lines="one")
    h.begin("p2", 1.0, lines="two")
    h.begin("p3", 1.1, lines="two")
    for name in ("p1", "p2", "p3"):
        h.end(name, 1.3)
    for name, at in (("r1", 2.0), ("r2", 2.5), ("r3", 3.0)):
        h.begin(name, at)
        h.end(name, at + 0.1)
    h.begin("crashed", 3.0, pid=3)
    h.note(3.2, "died", pid=9, of=3)
    h.begin("crashed", 5.0)
    h.end("crashed", 5.1)
    hand_over(h, "call", 4.0)
    h.note(4.3, "called", job="call", run=1)
    h.note(4.5, "end", job="call", run=1, outcome="done")
    h.note(6.1, "signalled", pid=4, job="call", since=6 * SECOND, answer="applied")
    h.begin("after", 6.2, pid=2)
    h.end("after", 6.3, pid=2)
    hand_over(h, "silent", 7.0)
    h.jobs["silent"].update(state="dead", reason="deadline")
    vary(h)
    for at in (1.0, 2.0, 3.0):
        beat = {"since": int(at * SECOND), "worker": "w", "lease_ms": 3000, "lost": []}
        h.note(at + 0.1, "beat", **beat)
    h.note(3.3, "audit", pid=5, differences=[])
    h.note(9.0, "gates", pid=9, gates=[gate("lock:a"), gate("budget"), gate("lines", "pool")])
    return h


def hand_over(h: History, job: str, t: float) -> None:
    h.claim(job, t, handed=True)
    run = h.jobs[job]["run"]
    h.note(t, "begin", job=job, run=run, members={})
    h.note(t + 0.2, "handed", job=job, run=run)


def stop_before_the_reply(h: History, job: str, t: float) -> None:
    """A stop ends the handler whose hand-over is written but not answered; it runs again."""
    hand_over(h, job, t)
    h.drop(h.find("handed", job))
    h.note(t + 0.3, "end", job=job, run=1, outcome="stopped")
    h.jobs[job]["runs"][0]["outcome"] = "snoozed"
    hand_over(h, job, t + 0.5)
    h.jobs[job].update(state="dead", reason="deadline")


def gate(name: str, kind: str = "slots") -> Json:
    return {"name": name, "kind": kind, "used": 0, "holders": 0, "parked": 0}


def test_faultless_history_has_no_violation() -> None:
    assert good().violated() == set()


def test_offer_may_end_a_little_early_by_the_clock_of_the_witness() -> None:
    h = good()
    h.find("begin", "offered", 2)["t"] = int(3.99 * SECOND)
    assert h.violated() == set()


def test_run_that_ended_during_a_beat_is_not_lost() -> None:
    h = good()
    h.find("beat", nth=1)["lost"] = [["first", 1]]
    assert h.violated() == set()


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(("t", "violated"), [(10.9, {"capacity"}), (11.1, set[str]())])
def test_hand_over_with_a_late_reply_holds_its_permit_until_its_deadline(
    t: float, violated: set[str], lost: bool
) -> None:
    h = good()
    handed = h.find("handed", "silent")
    handed["t"] = int(12.0 * SECOND)
    if lost:
        handed.update(event="end", outcome="stopped")
    for fact in h.witness:
        if fact["event"] == "asked" and fact["jobs"][0][0] == "silent":
            fact["jobs"][0][1] = [["lock:c", 1, "lock"]]
    h.ask("next", [["lock:c", 1, "lock"]])
    h.begin("next", t, pid=2)
    h.end("next", t + 0.01, pid=2)
    assert h.violated() == violated


def stopped_over_its_lease() -> History:
    """Stop a process while it works; another does the job, and then the first continues."""
    h = good()
    h.ask("slow", [])
    h.begin("slow", 3.0, pid=7)
    h.note(7.0, "stopped", pid=9, of=7, since=int(3.1 * SECOND))
    h.note(7.01, "end", pid=7, job="slow", run=1, outcome="done")
    h.begin("slow", 6.0)
    h.end("slow", 6.1)
    return h


def test_actions_of_a_stopped_process_before_it_knows_are_no_violation() -> None:
    assert stopped_over_its_lease().violated() == set()


def test_writes_of_a_stopped_process_are_a_violation() -> None:
    h = stopped_over_its_lease()
    h.note(7.1, "settled", pid=7, **settled(7.02, ["slow", 1, "succeeded", "done"]))
    assert h.violated() == {"settled twice", "stale"}


def test_line_torn_by_a_kill_is_skipped() -> None:
    lines = [json.dumps(fact).encode() for fact in good().witness]
    seen = read_evidence([*lines, b'{"t": 12, "pid'], [])
    assert seen.torn == 1


def lose_a_job(h: History) -> None:
    del h.jobs["plain"]


def leave_a_job_waiting(h: History) -> None:
    h.jobs["plain"]["state"] = "waiting"


def leave_a_job_running(h: History) -> None:
    h.jobs["crashed"]["state"] = "running"


def invent_a_job(h: History) -> None:
    h.jobs["ghost"] = {**h.jobs["plain"], "id": "ghost"}


def make_two_of_one_key(h: History) -> None:
    h.note(0.41, "again", key="k", jobs=["plain", "copy"])
    h.jobs["copy"] = {**h.jobs["plain"], "id": "copy"}


def do_what_was_never_asked_for(h: History) -> None:
    h.note(1.0, "begin", job="ghost", run=1, members={})


def succeed_without_work(h: History) -> None:
    h.drop(h.find("end", "plain"))


def succeed_without_a_signal(h: History) -> None:
    h.find("signalled")["answer"] = "late"


def die_without_a_deadline(h: History) -> None:
    h.jobs["plain"].update(state="dead", reason="failed")


def die_though_the_signal_was_applied(h: History) -> None:
    h.jobs["call"].update(state="dead", reason="deadline")


def cancel_by_itself(h: History) -> None:
    h.jobs["plain"]["state"] = "cancelled"


def start_the_same_run_twice(h: History) -> None:
    h.note(0.55, "begin", pid=2, job="plain", run=1, members={})


def start_while_the_first_run_works(h: History) -> None:
    h.begin("plain", 0.55, pid=2)


def start_while_the_dying_process_still_works(h: History) -> None:
    h.note(5.05, "audit", pid=3, differences=[])


def go_back_to_an_older_run(h: History) -> None:
    h.find("begin", "crashed", 1)["run"] = 0
    h.find("end", "crashed")["run"] = 0


def settle_twice(h: History) -> None:
    h.note(0.8, "settled", pid=2, **settled(0.7, ["plain", 2, "succeeded", "done"]))


def settle_a_run_that_was_lost(h: History) -> None:
    h.note(5.6, "settled", pid=3, **settled(5.5, ["crashed", 1, "failed", "done"]))


def call_twice(h: History) -> None:
    h.note(4.4, "called", job="call", run=1)


def call_before_the_hand_over(h: History) -> None:
    h.drop(h.find("handed", "call"))


def start_again_after_a_hand_over(h: History) -> None:
    h.begin("silent", 8.0)


def start_again_after_a_hand_over_that_only_the_record_knows(h: History) -> None:
    h.drop(h.find("handed", "silent"))
    h.claim("silent", 8.0)


def start_again_after_an_answered_hand_over(h: History) -> None:
    h.note(8.2, "handed", job="stopped", run=1)
    h.drop(h.find("begin", "stopped", 1))


def start_again_after_a_handler_that_was_killed(h: History) -> None:
    h.drop(h.find("end", "stopped"))


def start_again_after_a_handler_that_returned(h: History) -> None:
    h.find("end", "stopped")["outcome"] = "done"


def start_again_after_a_call(h: History) -> None:
    h.note(8.2, "called", job="stopped", run=1)


def start_again_without_the_workers_request(h: History) -> None:
    h.jobs["stopped"]["runs"][0]["outcome"] = "lost"


def hold_a_lock_twice(h: History) -> None:
    h.find("begin", "second")["t"] = int(1.4 * SECOND)


def hold_more_than_a_budget(h: History) -> None:
    h.find("begin", "second")["t"] = int(1.4 * SECOND)
    for fact in h.witness:
        if fact["event"] == "asked":
            for _, gates, _, _, _ in fact["jobs"]:
                gates[:] = [one for one in gates if one[2] != "lock"]


def give_a_lock_back_at_the_hand_over(h: History) -> None:
    h.find("begin", "after")["t"] = int(5.0 * SECOND)


def overfill_a_member(h: History) -> None:
    h.find("begin", "p2")["members"] = {"lines": "one"}


def choose_no_member(h: History) -> None:
    h.find("begin", "p2")["members"] = {}


def choose_an_unknown_member(h: History) -> None:
    h.find("begin", "p2")["members"] = {"lines": "three"}


def exceed_a_rate_in_a_sliding_window(h: History) -> None:
    # Fixed windows of one second would miss this: two before 3.0 and one at 2.999 + 1 ms.
    h.jobs["r3"]["runs"][0]["claimed_at"] = 2999


def exceed_a_rate_where_handlers_begin(h: History) -> None:
    h.find("begin", "r3")["t"] = int(2.89 * SECOND)


def start_early(h: History) -> None:
    h.jobs["first"]["runs"][0]["claimed_at"] = 899


def forget_a_run(h: History) -> None:
    del h.jobs["crashed"]["runs"][0]


def find_a_difference(h: History) -> None:
    h.find("audit")["differences"] = [{"where": "lock:a", "what": "used 1, held 0"}]


def never_audit(h: History) -> None:
    h.drop(h.find("audit"))


def leak_a_permit(h: History) -> None:
    h.find("gates")["gates"][0]["used"] = 1


def leak_a_holder(h: History) -> None:
    h.find("gates")["gates"][0]["holders"] = 1


def leave_a_job_parked(h: History) -> None:
    h.find("gates")["gates"][0]["parked"] = 1


def lose_a_lease(h: History) -> None:
    h.find("beat", nth=1)["lost"] = [["crashed", 1]]


def fall_silent(h: History) -> None:
    h.find("beat", nth=2)["t"] = 6 * SECOND


def come_too_late(h: History) -> None:
    h.note(0.8, "settled", **settled(0.7, ["plain", 1, "succeeded", "lost"]))


def claim_outside_the_hours(h: History) -> None:
    h.jobs["timed"]["runs"][0]["claimed_at"] = 3_000


def claim_while_the_lane_is_closed(h: History) -> None:
    h.find("closed")["from_ms"] = 4_050
    h.jobs["timed"]["runs"][0]["claimed_at"] = 4_100


def finish_what_was_cancelled(h: History) -> None:
    h.note(0.2, "cancelled", pid=5, job="timed", answer="asked")


def begin_what_was_cancelled(h: History) -> None:
    h.begin("unwanted", 3.0)
    h.jobs["unwanted"]["state"] = "cancelled"


def dial_before_the_check(h: History) -> None:
    h.find("begin", "staged")["stage"] = "dial"


def dial_after_a_check_that_failed(h: History) -> None:
    h.find("end", "staged")["outcome"] = "failed"


def succeed_without_dialling(h: History) -> None:
    h.find("begin", "staged", 1)["stage"] = "check"


def accept_twice(h: History) -> None:
    h.find("answered", "offered", 2)["answer"] = "applied"


def accept_and_ask_on(h: History) -> None:
    h.jobs["offered"].update(state="dead", reason="exhausted")


def succeed_without_an_acceptance(h: History) -> None:
    h.drop(h.find("answered", "offered", 1))


def die_before_all_were_asked(h: History) -> None:
    h.drop(h.find("answered", "offered", 1))
    h.jobs["offered"].update(state="dead", reason="deadline")


def offer_beside_an_offer(h: History) -> None:
    h.find("begin", "offered", 2)["t"] = int(3.9 * SECOND)


def offer_before_the_answer(h: History) -> None:
    h.find("begin", "offered", 1)["t"] = int(1.4 * SECOND)


def ask_a_candidate_twice_at_once(h: History) -> None:
    SORTS["rival"] = "offered"
    h.ask("rival", [])
    h.offer("rival", 1.3, "ann")
    h.answer("rival", 1.6, "accepted")


def fire_twice(h: History) -> None:
    h.record("again", entry="tick", fired_at=1_000)
    h.begin("again", 1.3)
    h.end("again", 1.4)


def miss_a_moment(h: History) -> None:
    del h.jobs["fire1"]


def cancel_a_fire(h: History) -> None:
    h.jobs["fire1"]["state"] = "cancelled"


def never_fire(h: History) -> None:
    for number in range(3):
        del h.jobs[f"fire{number}"]


def fire_early(h: History) -> None:
    h.jobs["fire2"]["runs"][0]["claimed_at"] = 1_999


FAULTS: list[tuple[Callable[[History], None], str]] = [
    (lose_a_job, "lost"),
    (leave_a_job_waiting, "unfinished"),
    (leave_a_job_running, "unfinished"),
    (make_two_of_one_key, "key"),
    (invent_a_job, "nowhere"),
    (do_what_was_never_asked_for, "nowhere"),
    (succeed_without_work, "undeserved"),
    (succeed_without_a_signal, "undeserved"),
    (die_without_a_deadline, "undeserved"),
    (die_though_the_signal_was_applied, "undeserved"),
    (cancel_by_itself, "undeserved"),
    (start_the_same_run_twice, "double start"),
    (start_while_the_first_run_works, "two at once"),
    (start_while_the_dying_process_still_works, "two at once"),
    (go_back_to_an_older_run, "fence"),
    (settle_twice, "settled twice"),
    (settle_a_run_that_was_lost, "stale"),
    (call_twice, "called twice"),
    (call_before_the_hand_over, "called early"),
    (start_again_after_a_hand_over, "restarted"),
    (start_again_after_a_hand_over_that_only_the_record_knows, "restarted"),
    (start_again_after_an_answered_hand_over, "restarted"),
    (start_again_after_a_handler_that_was_killed, "restarted"),
    (start_again_after_a_handler_that_returned, "restarted"),
    (start_again_after_a_call, "restarted"),
    (start_again_without_the_workers_request, "restarted"),
    (hold_a_lock_twice, "capacity"),
    (hold_more_than_a_budget, "capacity"),
    (give_a_lock_back_at_the_hand_over, "capacity"),
    (overfill_a_member, "capacity"),
    (choose_no_member, "no member"),
    (choose_an_unknown_member, "no member"),
    (exceed_a_rate_in_a_sliding_window, "rate"),
    (exceed_a_rate_where_handlers_begin, "rate begun"),
    (start_early, "early"),
    (claim_outside_the_hours, "hours"),
    (claim_while_the_lane_is_closed, "closed"),
    (finish_what_was_cancelled, "cancel"),
    (begin_what_was_cancelled, "cancel"),
    (dial_before_the_check, "stage"),
    (dial_after_a_check_that_failed, "stage"),
    (succeed_without_dialling, "stage"),
    (accept_twice, "cascade"),
    (accept_and_ask_on, "cascade"),
    (succeed_without_an_acceptance, "cascade"),
    (die_before_all_were_asked, "cascade"),
    (offer_beside_an_offer, "cascade"),
    (offer_before_the_answer, "cascade"),
    (ask_a_candidate_twice_at_once, "capacity"),
    (fire_twice, "fire"),
    (miss_a_moment, "fire"),
    (never_fire, "fire"),
    (cancel_a_fire, "fire"),
    (fire_early, "early"),
    (forget_a_run, "no record"),
    (find_a_difference, "audit"),
    (never_audit, "audit"),
    (leak_a_permit, "leak"),
    (leak_a_holder, "leak"),
    (leave_a_job_parked, "leak"),
    (lose_a_lease, "lease"),
    (fall_silent, "beats"),
    (come_too_late, "lease"),
]


@pytest.mark.parametrize(("plant", "rule"), FAULTS, ids=[plant.__name__ for plant, _ in FAULTS])
def test_planted_fault_is_found(plant: Callable[[History], None], rule: str) -> None:
    history = good()
    plant(history)
    assert rule in history.violated()


def test_checker_shares_no_code_with_the_engine() -> None:
    for name in ("checker.py", "evidence.py", "witness.py"):
        tree = ast.parse(Path(__file__).with_name(name).read_text())
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        } | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not [one for one in imported if one.split(".")[0] == "headway"]
