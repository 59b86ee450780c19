from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean, median

import pytest

from headway.core.errors import InvalidValue
from headway.core.instant import parse_instant
from headway.lab.arrivals import Arrivals
from headway.lab.draws import Draws, read_argument
from headway.lab.scenario import Scenario
from headway.lab.scenario_values import read_distribution, read_moment

HOUR_MS = 3_600_000


def scenario(**fields: object) -> Scenario:
    told = {
        "start": "2026-03-02T08:00:00-05:00",
        "tz": "America/New_York",
        "duration": "10h",
        "kinds": {"call": {}},
        "workers": [{"name": "w", "lanes": ["main"]}],
        **fields,
    }
    return Scenario.model_validate(told)


def made(folder: Path, **table: object):
    told = scenario(arrivals=[{"kind": "call", **table}])
    arrivals = Arrivals(told, folder)
    return told, list(arrivals), arrivals.refused


def test_draws_depend_only_on_seed_and_purpose() -> None:
    assert Draws(1).unit("a", 1) == Draws(1).unit("a", 1)
    drawn = {Draws(seed).unit("a", n) for seed in range(10) for n in range(100)}
    assert len(drawn) == 1000
    assert 0 < min(drawn) < max(drawn) < 1
    assert fmean(drawn) == pytest.approx(0.5, abs=0.03)


def test_choices_follow_their_weights_and_zero_is_never_chosen() -> None:
    draws = Draws(5)
    chosen = [draws.choose({"a": 3, "b": 0, "c": 1}, n) for n in range(4000)]
    assert chosen.count("b") == 0
    assert chosen.count("a") == pytest.approx(3000, abs=100)


@pytest.mark.parametrize(
    ("told", "middle_ms", "mean_ms"),
    [
        ("90s", 90_000, 90_000),
        ({"uniform": ["1s", "3s"]}, 2_000, 2_000),
        ({"exponential": "2s"}, 2_000 * math.log(2), 2_000),
        ({"lognormal": "3m", "sigma": 0.5}, 180_000, 180_000 * math.exp(0.125)),
    ],
)
def test_distribution_has_its_given_median_and_mean(
    told: object, middle_ms: float, mean_ms: float
) -> None:
    spread, draws = read_distribution(told), Draws(2)
    drawn = [spread.draw(draws.unit(n), {}) for n in range(20_000)]
    assert median(drawn) == pytest.approx(middle_ms, rel=0.03)
    assert fmean(drawn) == pytest.approx(mean_ms, rel=0.03)


def test_length_can_come_from_an_argument_within_limits() -> None:
    spread = read_distribution({"argument": "minutes", "unit": "2m", "plus": "60m"})
    assert spread.draw(0.5, {"minutes": 96}) == (2 * 96 + 60) * 60_000
    with pytest.raises(InvalidValue, match="'minutes' is None"):
        spread.draw(0.5, {})
    short = read_distribution({"exponential": "2s", "at_least": "1s", "at_most": "3s"})
    drawn = [short.draw(Draws(1).unit(n), {}) for n in range(200)]
    assert (min(drawn), max(drawn)) == (1_000, 3_000)


@pytest.mark.parametrize(
    "told",
    [{}, {"uniform": ["3s", "1s"]}, {"uniform": "1s"}, {"constant": "1s", "exponential": "1s"}, 5],
)
def test_invalid_distribution_is_refused(told: object) -> None:
    with pytest.raises(InvalidValue):
        read_distribution(told)


def test_times_are_offsets_from_the_start_local_times_or_instants() -> None:
    start_at = parse_instant("2026-03-07T08:00:00-05:00")
    zone = "America/New_York"

    def at(text: str) -> int:
        return read_moment(text).resolve(start_at, zone)

    assert at("90m") == start_at + 90 * 60_000
    assert at("14:30") == parse_instant("2026-03-07T14:30:00-05:00")
    assert at("07:00") == parse_instant("2026-03-08T07:00:00-04:00")
    # The clock jumps over 02:30 on the 8th; the end of the gap is used instead.
    assert at("02:30") == parse_instant("2026-03-08T03:00:00-04:00")
    assert at("24:00") == parse_instant("2026-03-08T00:00:00-05:00")
    assert at("2026-03-07T12:00:00Z") == parse_instant("2026-03-07T12:00:00Z")


def test_backlog_is_complete_at_the_start(tmp_path: Path) -> None:
    told, jobs, _ = made(tmp_path, backlog=50, args={"phone": {"numbered": 9, "as": "+1{:03}"}})
    assert len(jobs) == len({job.id for job in jobs}) == 50
    assert {job.at for job in jobs} == {job.due_at for job in jobs} == {told.start}
    assert {str(job.args["phone"]) for job in jobs} <= {f"+1{n:03}" for n in range(9)}


def test_rate_gives_about_its_number_of_arrivals_in_order(tmp_path: Path) -> None:
    told, jobs, _ = made(tmp_path, rate="500/h")
    assert len(jobs) == pytest.approx(5000, abs=250)
    moments = [job.at for job in jobs]
    assert moments == sorted(moments)
    assert told.start <= moments[0] <= moments[-1] < told.start + 10 * HOUR_MS


def test_even_arrivals_are_evenly_spaced(tmp_path: Path) -> None:
    told, jobs, _ = made(tmp_path, rate="60/h", pattern="even")
    assert [job.at - told.start for job in jobs[:3]] == [60_000, 120_000, 180_000]


def test_rates_change_at_their_times(tmp_path: Path) -> None:
    steps = [
        {"at": "2026-03-02T06:00:00-05:00", "rate": "60/h"},
        {"at": "10:00", "rate": "600/h"},
        {"at": "12:00", "rate": "60/h"},
    ]
    told, jobs, _ = made(tmp_path, rates=steps)
    hours = [(job.at - told.start) // HOUR_MS for job in jobs]
    assert hours == sorted(hours)
    assert (hours[0], hours[-1]) == (0, 9)
    assert hours.count(0) + hours.count(1) == pytest.approx(120, abs=40)
    assert hours.count(2) + hours.count(3) == pytest.approx(1200, abs=120)
    assert sum(hour >= 4 for hour in hours) == pytest.approx(360, abs=70)


def test_longer_rate_keeps_the_jobs_of_a_shorter_one(tmp_path: Path) -> None:
    _, few, _ = made(tmp_path, rate="100/h", args={"phone": {"numbered": 1000}})
    _, many, _ = made(tmp_path, rate="200/h", args={"phone": {"numbered": 1000}})
    assert [job.args for job in few] == [job.args for job in many[: len(few)]]


def test_rows_of_a_file_are_selected_mapped_and_refused_one_by_one(tmp_path: Path) -> None:
    rows = [
        {"n": "A", "at": "2026-03-02T09:00:00-05:00", "minutes": 5},
        {"n": "B", "at": "2026-03-02T09:30:00-05:00", "minutes": None},
        {"n": "C", "at": "2026-03-02T09:30:00", "minutes": 5},
        {"at": "2026-03-02T09:30:00-05:00", "minutes": 5},
        {"n": "E", "at": "2026-03-02T10:00:00-05:00", "minutes": 7},
    ]
    lines = [json.dumps(row) for row in rows]
    lines[3:3] = ["not json", "", "[1]", '{"n": 1e400}']
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    told, jobs, refused = made(
        tmp_path,
        file="rows.jsonl",
        due="at",
        fields=["n"],
        present=["minutes"],
        args={"m": {"field": "minutes"}},
    )
    assert [dict(job.args) for job in jobs] == [{"n": "A", "m": 5}, {"n": "E", "m": 7}]
    assert [job.due_at - told.start for job in jobs] == [HOUR_MS, 2 * HOUR_MS]
    assert {job.at for job in jobs} == {told.start}
    assert [line.split(":")[0] for line in refused] == [
        f"rows.jsonl, line {number}" for number in (3, 4, 6, 7, 8)
    ]


@pytest.mark.parametrize(
    "kind",
    [
        {"service": {"argument": "m", "unit": "1m"}},
        {"hand_over": {"length": {"argument": "m", "unit": "1m"}}},
        {"hand_over": {"length": "1m", "late_by": {"argument": "m", "unit": "1m"}}},
        {"outcomes": {"ok": {"share": 1, "length": {"argument": "m", "unit": "1m"}}}},
    ],
)
def test_length_that_is_negative_or_a_word_is_refused_with_its_line_and_field(
    tmp_path: Path, kind: dict[str, object]
) -> None:
    minutes = [5, -3, "long", True, None, 0, 1.5]
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps({"air": one}) for one in minutes))
    table = {"kind": "call", "file": "rows.jsonl", "args": {"m": {"field": "air"}}}
    told = scenario(arrivals=[table], kinds={"call": kind})
    arrivals = Arrivals(told, tmp_path)
    assert [job.args["m"] for job in arrivals] == [5, 0, 1.5]
    assert [line.split(", which")[0] for line in arrivals.refused] == [
        f"rows.jsonl, line {number}: field 'air': the argument 'm' is {value!r}"
        for number, value in enumerate(minutes, 1)
        if value not in {5, 0, 1.5} or value is True
    ]


def test_length_impossible_for_any_job_of_a_table_is_refused(tmp_path: Path) -> None:
    kinds = {"call": {"service": {"argument": "m", "unit": "1m"}}}
    for args in ({}, {"m": -1}, {"m": {"choice": ["1", "2"]}}):
        told = scenario(arrivals=[{"kind": "call", "backlog": 1, "args": args}], kinds=kinds)
        with pytest.raises(InvalidValue, match=r"the argument 'm' is .*, which is not a duration"):
            list(Arrivals(told, tmp_path))


def test_rows_that_are_not_text_or_too_deep_are_refused_with_their_lines(tmp_path: Path) -> None:
    rows = [b'{"n": "A"}', b'{"n": "\xff"}', b'{"n": ' + b"[" * 100_000, b'{"n": 1\x00}']
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join([*rows, b'{"n": ' + b"9" * 5000 + b"}"]))
    _, jobs, refused = made(tmp_path, file="rows.jsonl", fields=["n"])
    assert [dict(job.args) for job in jobs] == [{"n": "A"}]
    assert [line.split(":")[0] for line in refused] == [
        f"rows.jsonl, line {number}" for number in (2, 3, 4, 5)
    ]


def test_pattern_that_cannot_produce_a_number_is_refused() -> None:
    with pytest.raises(InvalidValue, match="is not a format for a number"):
        read_argument({"numbered": 5, "as": "{name}"})
