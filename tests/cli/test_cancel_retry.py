from __future__ import annotations

from collections.abc import Sequence

import pytest

from headway.cli.commands import moves
from headway.contract.claims import ClaimRequest
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import Died, HandedOver
from headway.contract.store import Store
from headway.core.instant import format_instant
from tests.cli.conftest import Headway
from tests.cli.seeding import WORKER, claim, enqueue, new_job, settle


def states(headway: Headway) -> list[str]:
    return [job["state"] for job in headway("jobs", "--json", "--limit", "1000").document["jobs"]]


def dead(*ids: str) -> None:
    settle(*(Died(one.id, one.run, reason="bad") for one in claim("main", "other", n=len(ids))))


def test_named_jobs_are_cancelled_with_author_and_reason(headway: Headway):
    first, second, _ = enqueue(new_job(), new_job(), new_job())
    ran = headway("cancel", first, second, "--reason", "no more", "--author", "ann", "--json")
    assert ran.code == 0
    assert ran.document["done"] == 2
    assert [job["answer"] for job in ran.document["jobs"]] == ["done", "done"]
    assert states(headway) == ["cancelled", "cancelled", "waiting"]
    (note,) = headway("job", first, "--json").document["trail"]
    assert (note["author"], note["reason"]) == ("ann", "no more")


def test_running_job_gets_a_cancel_request(headway: Headway):
    (made,) = enqueue(new_job())
    claim("main")
    ran = headway("cancel", made)
    assert ran.code == 0
    assert "asked" in ran.out


def test_filter_cancels_jobs_of_every_state_before_the_end(headway: Headway):
    enqueue(*(new_job(priority=n) for n in range(5)), new_job(due_at=4_000_000_000_000))
    ended, awaiting, _ = claim("main", n=3)
    settle(Died(ended.id, ended.run, reason="bad"), HandedOver(awaiting.id, awaiting.run, key="k"))
    assert headway("cancel", "--lane", "main", "--yes").out == "3 done, 2 asked\n"


def test_named_jobs_beyond_a_page_are_cancelled_in_order(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("headway.cli.commands.moves.PAGE", 2)
    ids = enqueue(*(new_job() for _ in range(5)))
    ran = headway("cancel", *reversed(ids), "--json")
    assert [job["id"] for job in ran.document["jobs"]] == ids[::-1]
    assert states(headway) == ["cancelled"] * 5


def test_unknown_or_final_job_is_reported_with_exit_code_1(headway: Headway):
    (made,) = enqueue(new_job())
    headway("cancel", made)
    ran = headway("cancel", made, "nope", "--json")
    assert ran.code == 1
    assert [job["answer"] for job in ran.document["jobs"]] == ["refused", "unknown"]
    assert headway("cancel", "nope").code == headway("cancel", made).code == 1


def test_all_jobs_matching_a_filter_are_cancelled_after_confirmation(headway: Headway):
    enqueue(*(new_job(lane="other") for _ in range(3)), new_job())
    ran = headway("cancel", "--lane", "other")
    assert ran.code == 2
    assert ran.err == "headway: to cancel 3 jobs needs confirmation (answer y, or pass --yes)\n"
    assert states(headway) == ["waiting"] * 4
    alone = headway("cancel", "--lane", "main")
    assert alone.err == "headway: to cancel 1 job needs confirmation (answer y, or pass --yes)\n"
    assert headway("cancel", "--lane", "other", "--yes").out == "3 done\n"
    assert states(headway) == ["cancelled"] * 3 + ["waiting"]


def test_more_than_a_page_is_cancelled(headway: Headway):
    for _ in range(3):
        enqueue(*(new_job() for _ in range(700)))
    assert headway("cancel", "--kind", "noop", "--yes").out == "2100 done\n"
    assert headway("lanes", "--json").document["lanes"][0]["counts"] == {"cancelled": 2100}


def test_filter_without_matches_needs_no_confirmation(headway: Headway):
    enqueue(new_job())
    ran = headway("cancel", "--lane", "nope")
    assert (ran.code, ran.out) == (0, "no jobs match\n")


@pytest.mark.parametrize("verb", ["cancel", "retry"])
@pytest.mark.parametrize("line", [[], ["--yes"], ["--state", "dead"], ["x", "--lane", "main"]])
def test_jobs_must_be_either_named_or_filtered(headway: Headway, verb: str, line: list[str]):
    enqueue(new_job())
    assert headway(verb, *line).code == 2
    assert states(headway) == ["waiting"]


def test_dead_job_is_retried_with_other_arguments(headway: Headway):
    (made,) = enqueue(new_job(args=b'{"phone": "bad"}'))
    dead(made)
    assert headway("retry", made, "--args", '{"phone": "good"}').code == 0
    job = headway("job", made, "--json").document
    assert (job["state"], job["args"], job["life"]) == ("waiting", {"phone": "good"}, 2)


def test_filter_retries_dead_and_cancelled_jobs_only_if_requested(headway: Headway):
    ids = enqueue(new_job(), new_job(), new_job())
    dead(*ids[:2])
    headway("cancel", ids[2])
    assert headway("retry", "--lane", "main", "--yes", "--json").document["done"] == 2
    assert states(headway) == ["waiting", "waiting", "cancelled"]
    headway("retry", "--lane", "main", "--state", "cancelled", "--yes")
    assert states(headway) == ["waiting"] * 3


def test_filter_by_time_retries_jobs_that_ended_since(headway: Headway):
    waits, *ids = enqueue(new_job(priority=900), new_job(), new_job())
    dead(*ids)
    listed = headway("jobs", "--finished-since", "1h", "--limit", "2", "--json").document["jobs"]
    assert [job["id"] for job in listed] == ids
    last = max(job["finished_at"] for job in listed)
    after = format_instant(last + 1)
    assert headway("retry", "--finished-since", after, "--yes").out == "no jobs match\n"
    assert headway("jobs", "--finished-since", after, "--json").document["jobs"] == []
    number = sum(job["finished_at"] == last for job in listed)
    ran = headway("retry", "--finished-since", format_instant(last), "--yes", "--json")
    assert ran.document["done"] == number
    wrong = headway("retry", "--finished-since", "14:00", "--yes")
    assert (wrong.code, "--finished-since: the duration '14:00'" in wrong.err) == (2, True)
    assert headway("job", waits, "--json").document["life"] == 1


def test_filter_by_state_leaves_a_job_that_is_claimed_after_its_page_was_read(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    enqueue(new_job(), new_job())
    act = moves._act

    async def late(store: Store, move: ActRequest, ids: Sequence[str]) -> list[ActReply]:
        await store.claim(ClaimRequest(worker=WORKER, request=1, lanes=(("main", 1),)))
        return await act(store, move, ids)

    monkeypatch.setattr(moves, "_act", late)
    ran = headway("cancel", "--lane", "main", "--state", "waiting", "--yes")
    assert ran.out == "1 done, 1 refused\n"
    shown = headway("jobs", "--json").document["jobs"]
    found = [(one["state"], one["cancel_requested"]) for one in shown]
    assert sorted(found) == [("cancelled", False), ("running", False)]


def test_arguments_that_are_not_an_object_are_refused_and_nothing_is_retried(headway: Headway):
    ids = enqueue(new_job())
    dead(*ids)
    assert headway("retry", ids[0], "--args", "[1]").code == 2
    assert states(headway) == ["dead"]


@pytest.mark.parametrize("command", [["cancel", "--yes"], ["retry", "--yes"], ["jobs"]])
def test_unknown_lane_or_kind_is_reported_with_similar_names(headway: Headway, command: list[str]):
    headway("send", "letter", "--lane", "mail")
    ran = headway(*command, "--lane", "mial", "--kind", "lettr")
    assert ran.code == 0
    assert "no job of the lane 'mial' is known (did you mean mail?)" in ran.err
    assert "no job of the kind 'lettr' is known (did you mean letter?)" in ran.err
    assert "note" not in headway(*command, "--lane", "mail", "--kind", "letter").err
