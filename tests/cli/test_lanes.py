from __future__ import annotations

import pytest

from headway.cli.commands.lanes import LaneValues
from headway.contract.definitions import LaneSpec
from headway.contract.outcomes import Succeeded
from tests.cli.conftest import Headway
from tests.cli.seeding import claim, enqueue, new_job, settle


def test_lanes_are_listed_with_their_jobs_by_state(headway: Headway):
    enqueue(new_job(lane="a"), new_job(lane="a"), new_job(lane="b", due_at=4_000_000_000_000))
    (started,) = claim("a")
    settle(Succeeded(started.id, started.run))
    lanes = headway("lanes", "--json").document["lanes"]
    assert [(lane["name"], lane["counts"], lane["unfinished"]) for lane in lanes] == [
        ("a", {"waiting": 1, "succeeded": 1}, 1),
        ("b", {"scheduled": 1}, 1),
    ]
    ran = headway("lanes")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["LANE", "a", "b"]


def test_only_named_lanes_are_listed(headway: Headway):
    enqueue(new_job(lane="a"), new_job(lane="b"))
    assert [one["name"] for one in headway("lanes", "--lane", "b", "--json").document["lanes"]] == [
        "b"
    ]


def test_paused_lane_is_shown_as_paused(headway: Headway):
    enqueue(new_job())
    headway("pause", "lane:main")
    assert headway("lanes").out.splitlines()[1].endswith("paused")
    headway("resume", "lane:main")
    assert "paused" not in headway("lanes").out


def test_operators_lane_applies_until_reset_and_keeps_other_values(headway: Headway):
    headway("migrate")
    headway(
        "lanes", "set", "a", "--concurrency", "3", "--fair", "--weight", "t=2", "--lease", "20s"
    )
    ran = headway("lanes", "set", "a", "--max-backlog", "9", "--target", "1500ms")
    assert (ran.code, ran.out) == (0, "a is set\n")
    (lane,) = headway("lanes", "--lane", "a", "--json").document["lanes"]
    assert lane["overridden"]
    assert lane["spec"] == {
        "name": "a",
        "concurrency": 3,
        "lease_ms": 20_000,
        "target_ms": 1_500,
        "fair": "tenant",
        "weights": [["t", 2]],
        "max_backlog": 9,
    }
    headway("lanes", "reset", "a")
    (lane,) = headway("lanes", "--lane", "a", "--json").document["lanes"]
    assert (lane["overridden"], lane["spec"]["concurrency"]) == (False, None)


def test_settings_that_another_operator_sets_meanwhile_are_kept(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    headway("migrate")
    change = LaneValues.change

    def change_after_another(self: LaneValues, now: LaneSpec) -> LaneSpec:
        monkeypatch.setattr(LaneValues, "change", change)
        assert headway("lanes", "set", "a", "--lease", "20s").code == 0
        return self.change(now)

    monkeypatch.setattr(LaneValues, "change", change_after_another)
    assert headway("lanes", "set", "a", "--concurrency", "3").out == "a is set\n"
    (lane,) = headway("lanes", "--lane", "a", "--json").document["lanes"]
    assert (lane["spec"]["concurrency"], lane["spec"]["lease_ms"]) == (3, 20_000)


def test_backlog_of_a_lane_can_be_set_to_zero(headway: Headway):
    headway("migrate")
    for most in (5, 0):
        headway("lanes", "set", "a", "--max-backlog", str(most))
        (lane,) = headway("lanes", "--json").document["lanes"]
        assert lane["spec"]["max_backlog"] == most


def test_jobs_without_a_tenant_have_a_weight_too(headway: Headway):
    headway("migrate")
    headway("lanes", "set", "a", "--fair", "--weight", "=2")
    (lane,) = headway("lanes", "--json").document["lanes"]
    assert lane["spec"]["weights"] == [["", 2]]


def test_lane_set_to_unfair_has_no_weights(headway: Headway):
    headway("migrate")
    headway("lanes", "set", "a", "--fair", "--weight", "t=2")
    headway("lanes", "set", "a", "--no-fair")
    (lane,) = headway("lanes", "--lane", "a", "--json").document["lanes"]
    assert (lane["spec"]["fair"], lane["spec"]["weights"]) == (None, [])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([], "nothing to change"),
        (["--concurrency", "-1"], "-1"),
        (["--max-backlog", "99999999999999999999"], "99999999999999999999"),
        (["--weight", "t=2"], "not fair"),
        (["--fair", "--weight", "t"], "not TENANT=N"),
        (["--fair", "--weight", "t=0"], "is 0"),
        (["--lease", "soon"], "soon"),
    ],
)
def test_unusable_lane_is_refused_and_nothing_is_written(
    headway: Headway, line: list[str], said: str
):
    headway("migrate")
    ran = headway("lanes", "set", "a", *line)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert said in ran.err
    assert headway("lanes", "--json").document["lanes"] == []


def test_latency_of_each_lane_is_shown_beside_its_target(headway: Headway):
    headway("migrate")
    headway("lanes", "set", "a", "--target", "1h")
    headway("lanes", "set", "b", "--target", "1ms")
    enqueue(new_job(lane="a"), new_job(lane="b", due_at=1), new_job(lane="b", due_at=1))
    assert len(claim("a")) == 1
    a, b = headway("lanes", "--latency", "--json").document["lanes"]
    assert (a["lane"], a["target_ms"], a["starts"], a["breached"]) == ("a", 3_600_000, 1, False)
    assert (b["lane"], b["starts"], b["p95_ms"]) == ("b", 0, None)
    assert (b["handlers_missing"], b["breached"]) == (True, True)
    ran = headway("lanes", "--latency", "--lane", "b")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["LANE", "b"]
    assert ran.out.rstrip().endswith("handlers missing")


@pytest.mark.parametrize("change", [["set", "--concurrency", "2"], ["reset"]])
def test_change_of_an_unknown_lane_is_made_with_a_note(headway: Headway, change: list[str]):
    headway("send", "noop", "--lane", "mail")
    ran = headway("lanes", *change, "mial")
    assert ran.code == 0
    assert "no job of the lane 'mial' is known (did you mean mail?)" in ran.err
    assert headway("lanes", *change, "mail").err == ""


def test_listing_of_an_unknown_lane_has_a_note(headway: Headway):
    headway("send", "noop", "--lane", "mail")
    for more in ((), ("--latency",)):
        ran = headway("lanes", "--lane", "mial", *more)
        assert ran.err == "note: no job of the lane 'mial' is known (did you mean mail?)\n"
        assert headway("lanes", "--lane", "mail", *more).err == ""
