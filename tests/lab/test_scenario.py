from __future__ import annotations

from pathlib import Path

import pytest

from headway.core.errors import InvalidValue
from headway.lab.scenario_file import read_scenarios

GOOD = """
seed = 3
start = "2026-03-02T08:00:00-05:00"
tz = "America/New_York"
duration = "4h"

[gates.numbers]
kind = "pool"
members = { "+15550001" = 4, "+15550002" = 8 }

[gates."customer:{phone}"]
kind = "rate"
limit = 7
per = "1h"

[kinds.call]
lane = "calls"
gates = ["numbers", { gate = "customer:{phone}", take = 2 }]
outcomes = { talked = { share = 3 }, busy = { share = 1, then = "retry", after = "5m" } }
hand_over = { length = { lognormal = "3m", sigma = 0.6 }, lost = 0.01 }

[[arrivals]]
name = "leads"
kind = "call"
rate = "100/h"
args = { phone = { numbered = 50, as = "+1{:04}" } }

[[workers]]
name = "dialler"
lanes = ["calls"]

[[moves]]
name = "lunch"
do = "pause"
at = "12:00"
gate = "lane:calls"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "scenario.toml"
    path.write_text(text)
    return path


def test_good_file_is_read_completely(tmp_path: Path) -> None:
    (scenario,) = read_scenarios(write(tmp_path, GOOD))
    assert scenario.seed == 3
    assert scenario.duration == 4 * 3_600_000
    assert scenario.kinds["call"].gates[0].gate == "numbers"
    assert scenario.kinds["call"].gates[1].take == 2
    assert scenario.workers[0].lanes == {"calls": 1}
    assert (
        scenario.moves[0].at.resolve(scenario.start, scenario.tz) - scenario.start == 4 * 3_600_000
    )


def test_given_seed_overrides_that_of_the_file(tmp_path: Path) -> None:
    assert read_scenarios(write(tmp_path, GOOD), seed=9)[0].seed == 9


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('start = "2026', "start = 2026", "cannot be read"),
        ('start = "2026-03-02T08:00:00-05:00"', "", "start: it is missing"),
        ("T08:00:00-05:00", "T08:00:00", "start: the instant .* has no offset"),
        ('duration = "4h"', 'duration = "4 hours"', "duration: the duration '4 hours'"),
        ("limit = 7", "limit = -7", 'gates."customer:{phone}": limit .* is -7'),
        (
            "limit = 7",
            'limit = "7"',
            'limit: it should be a whole number, and is "7"',
        ),
        ("limit = 7", "limit = 7\nburst = 3", 'gates."customer:{phone}".burst: there is no such'),
        (
            'kind = "pool"',
            'kind = "pond"',
            "gates.numbers: the key 'kind' should be one of",
        ),
        ('"numbers", {', '"number", {', r"kinds.call.gates\[0\]: .*did you mean numbers"),
        ('kind = "call"', 'kind = "cal"', r"arrivals\[0\].kind: there is no kind 'cal'"),
        ('rate = "100/h"', 'rate = "100"', r"arrivals\[0\].rate: the rate '100'"),
        ('rate = "100/h"', "", r"arrivals\[0\]: one of backlog, rate, rates and file"),
        ('rate = "100/h"', 'file = "no.jsonl"', r"arrivals\[0\].file: there is no file"),
        ('lognormal = "3m", sigma', 'normal = "3m", sigma', "hand_over.length: one shape"),
        ("sigma = 0.6", "sigma = -1", "hand_over.length: sigma is -1"),
        ("lost = 0.01", "lost = 1.01", "hand_over.lost: it should be at most 1.0, and is 1.01"),
        ('then = "retry"', 'then = "snooze"', "outcomes.busy.then: a signal cannot snooze"),
        ("numbered = 50", "numbered = 0", r"arrivals\[0\].args.phone: no value"),
        ("numbered = 50", f"numbered = 1{400 * '0'}", r"arrivals\[0\].args.phone: no value"),
        (
            'numbered = 50, as = "+1{:04}"',
            f"choice = {{ a = 1{400 * '0'} }}",
            r"args.phone: the weight of 'a' is 1000",
        ),
        ('numbered = 50, as = "+1{:04}"', "choice = { a = inf }", "the weight of 'a' is inf"),
        ('numbered = 50, as = "+1{:04}"', 'numbered = 2000000, as = "{:c}"', "not a format for a"),
        (
            "talked = {",
            '"a\\u0000" = {',
            "outcomes.a\0: the name of an outcome 'a.x00' contains NUL",
        ),
        ("share = 3", "share = inf", "outcomes.talked.share: it should be less than"),
        ('lanes = ["calls"]', 'lanes = [["calls"]]', r"workers\[0\].lanes: it should be a table"),
        ("args = {", 'args = { "first-name" = 1,', r"arrivals\[0\].args: 'first-name' cannot be"),
        ("args = {", "args = { class = 1,", r"arrivals\[0\].args: 'class' cannot be"),
        ("args = {", "args = { job = 1,", r"arrivals\[0\].args: 'job' cannot be"),
        ('do = "pause"', 'do = "stop"', r"moves\[0\]: the key 'do' should be one of"),
        ('at = "12:00"', 'at = "25:00"', r"moves\[0\].at: '25:00' is not a time of day"),
        ("[[workers]]", "[workers]", "workers: it should be a list, and is a table"),
        ('duration = "4h"', "", r"arrivals\[0\].rate: arrivals at a rate never end"),
        ('tz = "America/New_York"', 'tz = "America/New_Yrk"', "tz: there is no time zone"),
    ],
)
def test_fault_is_reported_with_file_and_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert GOOD.count(old) >= 1
    with pytest.raises(InvalidValue, match=said.replace("{", r"\{")) as caught:
        read_scenarios(write(tmp_path, GOOD.replace(old, new, 1)))
    assert str(tmp_path / "scenario.toml") in caught.value.message
    assert "\n" not in caught.value.message or "cannot be read" in caught.value.message


def test_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (scenario,) = read_scenarios(write(tmp_path, f"\ufeff{GOOD}"))
    assert scenario.seed == 3


def test_missing_file_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue) as caught:
        read_scenarios(tmp_path / "no.toml")
    assert str(caught.value) == (
        f"{tmp_path}/no.toml: the scenario cannot be read: No such file or directory"
    )


def test_several_faults_are_reported_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("limit = 7", "limit = true").replace("lost = 0.01", "lost = 2")
    with pytest.raises(InvalidValue, match=r"limit.*lost"):
        read_scenarios(write(tmp_path, text))


def test_what_if_changes_only_what_it_names(tmp_path: Path) -> None:
    text = (
        GOOD
        + """
[[what_if]]
name = "more lines"
set.gates.numbers.members."+15550001" = 12
set.kinds.call.hand_over.length = "1m"
set.workers.dialler.count = 3
set.moves.lunch.at = "13:00"
"""
    )
    base, varied = read_scenarios(write(tmp_path, text))
    assert varied.name == "more lines"
    assert varied.gates["numbers"].members == {"+15550001": 12, "+15550002": 8}  # pyright: ignore[reportAttributeAccessIssue]
    assert base.gates["numbers"].members == {"+15550001": 4, "+15550002": 8}  # pyright: ignore[reportAttributeAccessIssue]
    assert varied.kinds["call"].hand_over is not None
    assert varied.kinds["call"].hand_over.length.shape == "constant"
    assert varied.kinds["call"].hand_over.lost == 0.01
    assert varied.workers[0].count == 3
    assert varied.arrivals == base.arrivals


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("set.workers.nobody.count = 3", r"what_if\[0\].set: workers.nobody: none of the list"),
        ("set.gates.numbers.membrs = 3", r"what_if\[0\]: gates.numbers.membrs: there is no such"),
        ("set.duratoin = '1h'", r"what_if\[0\]: duratoin: there is no such key"),
        ("sets.duration = '1h'", r"what_if\[0\]: it should have a name and a table `set`"),
    ],
)
def test_what_if_that_names_nothing_is_refused(tmp_path: Path, change: str, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        read_scenarios(write(tmp_path, f"{GOOD}\n[[what_if]]\nname = 'x'\n{change}\n"))


@pytest.mark.parametrize("change", ["'x'", "{ name = 'x', set = 3 }", "{ name = 3, set = {} }"])
def test_what_if_that_is_not_a_table_is_refused(tmp_path: Path, change: str) -> None:
    with pytest.raises(InvalidValue, match=r"what_if\[0\]: it should have a name and a table"):
        read_scenarios(write(tmp_path, f"what_if = [{change}]\n{GOOD}"))
