from __future__ import annotations

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


def test_only_the_lanes_named_are_listed(headway: Headway):
    enqueue(new_job(lane="a"), new_job(lane="b"))
    assert [one["name"] for one in headway("lanes", "b", "--json").document["lanes"]] == ["b"]


def test_a_paused_lane_is_shown_as_paused(headway: Headway):
    enqueue(new_job())
    headway("pause", "lane:main")
    assert headway("lanes").out.splitlines()[1].endswith("paused")
    headway("resume", "lane:main")
    assert "paused" not in headway("lanes").out
