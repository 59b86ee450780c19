from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headway.core.errors import InvalidValue
from headway.lab.invariants import check
from headway.lab.report import KindCounts, Report
from headway.lab.scenario import Scenario
from headway.lab.simulate import Played, as_json, play, simulate

REPOSITORY = Path(__file__).parents[2]

CALLS = """
seed = 5
start = "2026-03-02T09:00:00Z"
duration = "40m"
drain = "2h"

[gates.numbers]
kind = "pool"
members = { a = 3, b = 2 }

[gates."customer:{phone}"]
kind = "rate"
limit = 2
per = "20m"

[kinds.call]
lane = "calls"
gates = ["numbers", "customer:{phone}"]
service = { uniform = ["80ms", "3s"] }
outcomes = { ok = { share = 3 }, busy = { share = 1, then = "retry", after = "3m" } }

[kinds.call.hand_over]
length = { exponential = "40s" }
timeout = "10m"
lost = 0.05
late = 0.1
duplicate = 0.1
ask = true

[[arrivals]]
name = "leads"
kind = "call"
rate = "200/h"
args = { phone = { numbered = 60 } }

[[workers]]
name = "w"
lanes = ["calls"]
count = 3
concurrency = 3
"""
KILL = """
[[moves]]
do = "kill"
at = "{}"
worker = "w"
count = 2
restart_after = "20s"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "scenario.toml"
    path.write_text(text)
    return path


def only(folder: Path, text: str) -> Report:
    (report,) = simulate(written(folder, text)).reports
    return report


def kind(report: Report, name: str = "call") -> KindCounts:
    return {row.kind: row for row in report.kinds}[name]


def played(*, folder: Path = Path(), **fields: object) -> tuple[Scenario, Played]:
    told: dict[str, object] = {
        "start": "2026-03-02T09:00:00Z",
        "kinds": {"work": {"gates": ["desk"], "service": "10s"}},
        "gates": {"desk": {"kind": "slots", "capacity": 2}},
        "arrivals": [{"kind": "work", "backlog": 20}],
        "workers": [{"name": "w", "lanes": ["main"], "concurrency": 5}],
        **fields,
    }
    scenario = Scenario.model_validate(told)
    return scenario, play(scenario, folder)


@pytest.mark.slow
def test_same_seed_gives_the_same_numbers_in_another_process(tmp_path: Path) -> None:
    path = written(tmp_path, CALLS + KILL.format("11m"))
    here = as_json(simulate(path))
    program = (
        "import sys; from pathlib import Path; from headway.lab.simulate import as_json, simulate;"
        "sys.stdout.buffer.write(as_json(simulate(Path(sys.argv[1]))))"
    )
    for hash_seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", program, str(path)],
            check=True,
            capture_output=True,
            cwd=REPOSITORY,
            env={"PYTHONHASHSEED": hash_seed},
        )
        assert there.stdout == here
    assert as_json(simulate(path, seed=6)) != here


@pytest.mark.slow
def test_call_centre_with_losses_ends_every_job_and_breaks_no_promise(tmp_path: Path) -> None:
    report = only(tmp_path, CALLS)
    assert report.violations == ()
    assert report.unfinished == 0
    calls = kind(report)
    assert calls.jobs == calls.succeeded > 100
    assert calls.runs == calls.outcomes["ok"] + calls.outcomes["busy"]
    assert calls.outcomes["busy"] > 10
    assert calls.outcomes["signal lost"] == calls.outcomes["ended when asked"] > 0
    assert calls.outcomes["signal twice"] > 0
    numbers = next(gate for gate in report.gates if gate.gate == "numbers")
    assert numbers.capacity == numbers.peak == 5
    assert numbers.starts == calls.runs


def test_killed_workers_lose_nothing_and_dial_no_phone_twice(tmp_path: Path) -> None:
    kills = "".join(KILL.format(f"{minute}m") for minute in range(5, 40, 3))
    slow = CALLS.replace('["80ms", "3s"]', '["10s", "40s"]')
    # A lost run uses up an attempt, as a busy line does: five would not be enough for every job.
    report = only(tmp_path, slow + kills + "[kinds.call.retry]\nattempts = 20\n")
    assert report.violations == ()
    assert report.unfinished == 0
    calls = kind(report)
    assert calls.jobs == calls.succeeded
    lost = calls.runs - calls.outcomes["ok"] - calls.outcomes["busy"]
    assert lost > 0


def test_full_gate_stays_full_until_its_backlog_ends() -> None:
    scenario, found = played()
    assert check(found.history, scenario) == []
    assert found.history.end_at - scenario.start == 20 // 2 * 10_000
    starts = sorted(run.claimed_at - scenario.start for _, run in found.history.runs())
    assert starts == [n // 2 * 10_000 for n in range(20)]


def test_pauses_capacities_and_limits_apply_from_their_time() -> None:
    scenario, found = played(
        moves=[
            {"do": "pause", "at": "15s", "gate": "lane:main", "until": "1m"},
            {"do": "capacity", "at": "90s", "gate": "desk", "to": 4},
            {"do": "pause", "at": "95s", "gate": "desk"},
            {"do": "resume", "at": "2m", "gate": "desk"},
        ]
    )
    assert check(found.history, scenario) == []
    starts = sorted(run.claimed_at - scenario.start for _, run in found.history.runs())
    assert starts[:6] == [0, 0, 10_000, 10_000, 60_000, 60_000]
    assert starts[6:14] == [70_000] * 2 + [80_000] * 2 + [90_000] * 4
    assert starts[14:] == [120_000] * 4 + [130_000] * 2


def test_hours_are_waited_for() -> None:
    hours = {"kind": "hours", "open": "09:30-10:00,11:00-12:00", "days": "mon,wed", "tz": "UTC"}
    scenario, found = played(
        gates={"hours": hours},
        kinds={"work": {"gates": ["hours"], "service": "20m"}},
        arrivals=[{"kind": "work", "backlog": 12}],
        workers=[{"name": "w", "lanes": ["main"], "concurrency": 5}],
    )
    assert check(found.history, scenario) == []
    starts = sorted(run.claimed_at - scenario.start for _, run in found.history.runs())
    assert [start / 60_000 for start in starts] == [30] * 5 + [50] * 5 + [120] * 2


def test_workers_start_and_leave_gracefully() -> None:
    workers = [
        {"name": "early", "lanes": ["main"], "concurrency": 1, "stops": "25s"},
        {"name": "late", "lanes": ["main"], "concurrency": 1, "starts": "1m"},
    ]
    scenario, found = played(workers=workers, arrivals=[{"kind": "work", "backlog": 5}])
    assert check(found.history, scenario) == []
    starts = sorted(run.claimed_at - scenario.start for _, run in found.history.runs())
    assert starts == [0, 10_000, 20_000, 60_000, 70_000]
    assert {run.outcome for _, run in found.history.runs()} == {"succeeded"}


def test_outcomes_are_applied() -> None:
    def state_of(outcome: dict[str, object]) -> list[tuple[str, int]]:
        kinds = {
            "work": {
                "service": "1s",
                "outcomes": {"it": {"share": 1, **outcome}},
                "retry": {"attempts": 3},
            }
        }
        arrivals = [{"kind": "work", "backlog": 1}]
        _, found = played(kinds=kinds, arrivals=arrivals, duration="1h")
        assert found.outcomes["work", "it"] == len(found.history.jobs[0].runs)
        return [(str(job.state), len(job.runs)) for job in found.history.jobs]

    assert state_of({"then": "succeed"}) == [("succeeded", 1)]
    assert state_of({"then": "die"}) == [("dead", 1)]
    assert state_of({"then": "retry", "after": "5m"}) == [("dead", 3)]
    assert state_of({"then": "snooze", "after": "20m"}) == [("scheduled", 3)]


def test_missing_signal_is_decided_by_the_deadline() -> None:
    def end_of(on_deadline: str) -> tuple[str, int]:
        hand_over = {"length": "1m", "lost": 1.0, "timeout": "5m", "on_deadline": on_deadline}
        kinds = {"work": {"hand_over": hand_over, "retry": {"attempts": 2, "jitter": "none"}}}
        scenario, found = played(kinds=kinds, arrivals=[{"kind": "work", "backlog": 1}])
        assert check(found.history, scenario) == []
        (job,) = found.history.jobs
        return str(job.state), len(job.runs)

    assert end_of("dead") == ("dead", 1)
    assert end_of("retry") == ("dead", 2)


@pytest.mark.slow
def test_fewer_lines_make_longer_waits_for_the_same_calls(tmp_path: Path) -> None:
    what_if = "[[what_if]]\nname = 'fewer'\nset.gates.numbers.members.b = 0\n"
    base, fewer = simulate(written(tmp_path, CALLS + what_if)).reports
    assert base.violations == fewer.violations == ()
    assert kind(base).jobs == kind(fewer).jobs
    assert fewer.waits[0].total.p50 > 2 * base.waits[0].total.p50


@pytest.mark.parametrize(
    ("strict", "lax", "rule"),
    [
        ({"kind": "slots", "capacity": 2}, {"kind": "slots", "capacity": 3}, "permits"),
        (
            {"kind": "pool", "members": {"a": 1, "b": 1}},
            {"kind": "pool", "members": {"a": 1, "b": 2}},
            "permits",
        ),
        (
            {"kind": "rate", "limit": 2, "per": "30s"},
            {"kind": "rate", "limit": 2, "per": "29s"},
            "rate",
        ),
        (
            {"kind": "hours", "open": "09:00-09:01,09:05-09:30"},
            {"kind": "hours", "open": "09:00-09:02,09:05-09:30"},
            "hours",
        ),
    ],
)
def test_engine_that_misreads_a_limit_is_caught(
    strict: dict[str, object], lax: dict[str, object], rule: str
) -> None:
    workers = [{"name": "w", "lanes": ["main"], "concurrency": 2}]
    if rule == "permits":
        workers[0]["concurrency"] = 5
    scenario, found = played(gates={"desk": strict}, workers=workers)
    assert check(found.history, scenario) == []
    _, mistaken = played(gates={"desk": lax}, workers=workers)
    assert {violation.rule for violation in check(mistaken.history, scenario)} == {rule}


def test_argument_refused_by_the_engine_is_reported_with_the_file(tmp_path: Path) -> None:
    text = CALLS.replace("args = { phone =", "args = { lane =")
    with pytest.raises(InvalidValue, match=r"scenario.toml: base: .*'lane'"):
        simulate(written(tmp_path, text))


def test_row_due_after_the_last_year_is_reported_and_others_continue(tmp_path: Path) -> None:
    rows = ['{"at": "9999-12-31T23:59:59Z"}', '{"at": "2026-03-02T08:00:00Z"}']
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    table = {"kind": "work", "file": "rows.jsonl", "due": "at", "due_after": "1s"}
    history = played(folder=tmp_path, arrivals=[table], duration="1m")[1].history
    assert len(history.jobs) == 1
    assert history.refused[0].startswith("rows.jsonl, line 1: the instant")


def test_row_refused_by_the_engine_is_reported_with_its_line_and_others_continue(
    tmp_path: Path,
) -> None:
    rows = ['{"phone": "1"}', '{"phone": "b\\u0000"}', '{"phone": "3"}']
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    table = {"kind": "call", "file": "rows.jsonl", "fields": ["phone"], "cancel": True}
    told = Scenario.model_validate(
        {
            "start": "2026-03-02T08:00:00Z",
            "kinds": {"call": {"subject": "{phone}"}},
            "workers": [{"name": "w", "lanes": ["main"]}],
            "arrivals": [table],
        }
    )
    history = play(told, tmp_path).history
    assert sorted(job.subject or "" for job in history.jobs) == ["1", "3"]
    assert {job.state for job in history.jobs} == {"cancelled"}
    assert history.refused == ["rows.jsonl, line 2: subject 'b\\x00' contains NUL"]


def test_jobs_above_the_backlog_of_a_lane_are_reported_and_others_continue() -> None:
    scenario, found = played(
        lanes={"main": {"max_backlog": 2}},
        arrivals=[{"kind": "work", "backlog": 3}, {"kind": "work", "rate": "60/h"}],
        duration="10m",
    )
    (refused,) = found.history.refused
    assert refused.startswith("work at 2026-03-02T09:00:00+00:00: lane 'main' holds 2 jobs of")
    assert len(found.history.jobs) == len(found.history.sent) > 2
    assert check(found.history, scenario) == []


def test_move_at_an_unknown_gate_is_reported_with_its_place(tmp_path: Path) -> None:
    move = "[[moves]]\ndo = 'pause'\nat = '1m'\ngate = 'nowhere'\n"
    with pytest.raises(InvalidValue, match=r"moves\[0\]: .*nowhere"):
        simulate(written(tmp_path, CALLS + move))


def test_progress_is_reported_up_to_the_end(tmp_path: Path) -> None:
    told: list[float] = []
    simulate(written(tmp_path, CALLS), progress=lambda _, share: told.append(share))
    assert told[0] == 0.0
    assert told == sorted(told)
    assert told[-1] <= 1.0
