from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headway.core.errors import InvalidValue
from headway.core.state import State
from headway.lab import plots
from headway.lab.gate_use import GateUsage, UsageMeter
from headway.lab.history import Changed, Closed, History
from headway.lab.invariants import Violation
from headway.lab.report import Report, percentiles, report
from headway.lab.tables import show
from tests.lab.histories import START_AT, at, history, job, run, scenario, use

LINES = (use("lines"),)


def measured(told: History, **fields: object) -> dict[str, GateUsage]:
    return {row.gate: row for row in UsageMeter(told, scenario(**fields)).uses()}


def test_gate_usage_is_weighted_by_time() -> None:
    told = history(
        job("a", run(1, 0, 300), gates=(use("desk", amount=2),)),
        job("b", run(1, 150, 450), gates=(use("desk"),)),
    )
    desk = measured(told)["desk"]
    assert desk.starts == 2
    assert desk.mean == pytest.approx((300 * 2 + 300 * 1) / 600)
    assert desk.peak == 3
    assert desk.full == pytest.approx(150 / 600)
    assert (desk.capacity, desk.shut, desk.instances) == (3, 0.0, 1)


def test_pool_is_reported_in_total_and_by_member() -> None:
    told = history(
        job("a", run(1, 0, 600, permits={"lines": "x"}), gates=LINES),
        job("b", run(1, 0, 300, permits={"lines": "x"}), gates=LINES),
        job("c", run(1, 0, 60, permits={"lines": "y"}), gates=LINES),
    )
    rows = measured(told)
    assert list(rows) == ["lines", "lines/x", "lines/y", "lane:calls"]
    assert rows["lines"].capacity == rows["lines"].peak == 3
    assert rows["lines"].full == pytest.approx(0.1)
    assert rows["lines/x"].full == pytest.approx(0.5)
    assert rows["lines/y"].mean == pytest.approx(0.1)
    assert [row.member for row in rows.values()] == [False, True, True, False]


def test_rate_is_used_for_its_window_after_each_start() -> None:
    phone = (use("customer:5", "customer:{phone}"),)
    told = history(job("a", run(1, 0, 1), gates=phone), job("b", run(1, 30, 31), gates=phone))
    row = measured(told)["customer:5"]
    assert row.mean == pytest.approx(120 / 600)
    assert row.peak == 2
    assert row.full == pytest.approx(30 / 600)


def test_many_instances_of_a_keyed_gate_are_one_row() -> None:
    told = history(
        *(
            job(f"j{n}", run(1, n, n + 1), gates=(use(f"customer:{n}", "customer:{phone}"),))
            for n in range(20)
        )
    )
    row = measured(told)["customer:{phone}"]
    assert (row.instances, row.starts, row.peak) == (20, 20, 1)


def test_closed_times_and_changed_capacities_are_reported() -> None:
    told = history(
        # It still runs at the end.
        job("a", run(1, 0, None), gates=(use("desk"),), state=State.RUNNING),
        job("m", run(1, -61, 0), gates=(use("hours", zone="UTC"),)),
    )
    told.closings.append(Closed(gate="desk", from_at=at(540), to_at=at(600)))
    told.changes += [Changed(gate="desk", at=at(300), to=1), Changed(gate="desk", at=at(450), to=2)]
    rows = measured(told)
    assert rows["desk"].capacity == 2
    assert rows["desk"].mean == pytest.approx(1)
    assert rows["desk"].full == pytest.approx(0.25)
    assert rows["desk"].shut == pytest.approx(0.1)
    assert rows["hours"].shut == 1.0
    assert rows["hours"].mean is None


def test_curve_contains_the_same_time_as_the_total() -> None:
    told = history(
        job("a", run(1, 13, 77), gates=(use("desk", amount=2),)),
        job("b", run(1, 50, 431), gates=(use("desk"),)),
    )
    meter = UsageMeter(told, scenario())
    (curve,) = [one for one in meter.curves() if one.gate == "desk"]
    (row,) = [one for one in meter.uses() if one.gate == "desk"]
    assert sum(curve.mean) / len(curve.mean) == pytest.approx(row.mean)
    assert max(curve.peak) == row.peak == 3
    assert set(curve.capacity) == {3}


def test_use_that_ends_between_two_parts_of_a_curve_is_only_in_the_first() -> None:
    told = history(
        job("a", run(1, 0, 300), gates=(use("desk", amount=2),)),
        job("b", run(1, 300, 600), gates=(use("desk"),)),
    )
    (curve,) = [one for one in UsageMeter(told, scenario()).curves() if one.gate == "desk"]
    middle = len(curve.peak) // 2
    assert curve.peak == (2,) * middle + (1,) * middle


def test_percentiles_use_the_nearest_rank() -> None:
    found = percentiles(list(range(1, 101)))
    assert (found.p50, found.p90, found.p99, found.most) == (50, 90, 99, 100)
    assert percentiles(list(range(1, 8))).p50 == 4
    assert percentiles([7]).p50 == percentiles([7]).most == 7
    assert percentiles([]).most == 0


def test_wait_is_divided_into_the_part_behind_gates_and_the_rest() -> None:
    late = replace(run(1, 10, 20, due=1), blocked_ms=4 * 60_000)
    (waits,) = report(scenario(), history(job("a", late)), {}, []).waits
    parts = (waits.total, waits.behind, waits.eligible)
    assert [one.most for one in parts] == [9 * 60_000, 4 * 60_000, 5 * 60_000]


def whole(name: str = "base") -> Report:
    told = history(
        job("a", run(1, 1, 10, permits={"lines": "x"}), gates=LINES),
        job("b", run(1, 2, 5, due=1, permits={"lines": "y"}), gates=LINES),
    )
    told.refused.append("rows.jsonl, line 3: it is not JSON")
    return report(scenario(name=name), told, {("call", "talked"): 2}, [])


def printed(*reports: Report) -> str:
    out = io.StringIO()
    show(Console(file=out, width=150, color_system=None), reports)
    return out.getvalue()


def test_tables_contain_the_numbers() -> None:
    text = printed(whole())
    assert "2 jobs, 0 of them unfinished" in text
    assert "talked 2" in text
    assert "lines/x" in text
    assert "refused: rows.jsonl, line 3: it is not JSON" in text
    assert "no violation found" in text
    assert "What if" not in text


def test_violations_are_printed_up_to_a_number_and_the_rest_counted() -> None:
    found = tuple(Violation("permits", f"desk: {n}") for n in range(25))
    text = printed(replace(whole(), violations=found))
    assert "violation: permits: desk: 0\n" in text
    assert "violation: … and 5 more violations" in text
    assert "no violation found" not in text


def test_several_reports_are_compared() -> None:
    text = printed(whole(), whole("12 lines"))
    assert "What if" in text
    assert "12 lines" in text.rsplit("What if", 1)[1]


def test_names_reach_the_terminal_only_as_text() -> None:
    text = printed(whole("\x1b[31mred[bold]\u202e"))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31mred[bold]\\u202e" in text


@pytest.mark.slow
def test_plots_of_the_same_numbers_are_the_same_file(tmp_path: Path) -> None:
    files = plots.draw([whole()], tmp_path / "png")
    assert [path.name for path in files] == ["base.gates.png", "base.waits.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in files)
    one, other = (plots.draw([whole()], tmp_path / name, kind="svg") for name in ("a", "b"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    assert "<svg" in one[0].read_text()


def test_empty_report_is_shown_and_drawn(tmp_path: Path) -> None:
    empty = report(scenario(), History(start_at=START_AT, end_at=at(60)), {}, [])
    assert "0 jobs" in printed(empty)
    assert len(plots.draw([empty], tmp_path)) == 2


def test_names_are_drawn_as_they_are_and_never_share_a_file(tmp_path: Path) -> None:
    empty = report(scenario(), History(start_at=START_AT, end_at=at(60)), {}, [])
    named = [replace(empty, name=name) for name in ("+1 line", "-1 line", "for $\\frac$")]
    files = plots.draw(named, tmp_path, kind="svg")
    assert len(set(files)) == 6


def test_error_without_matplotlib_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(plots.importlib, "import_module", without)
    with pytest.raises(InvalidValue, match=r"headway\[plot\]"):
        plots.draw([whole()], tmp_path)
