from __future__ import annotations

from pathlib import Path

import pytest

from headway.contract.outcomes import Died, Succeeded
from headway.contract.views import JobView
from headway.core.state import State
from tests.cli.conftest import Headway
from tests.cli.seeding import WORKER, claim, enqueue, new_job, settle

ODD_NAMES = [
    'it\'s "quoted"',
    "{}",
    "{phone}",
    "[red]markup[/red]",
    "\x1b[2Jescape",
    "two\nlines",
    "東京 ☎",
    "-dash",
    "a" * 512,
    "%s; DROP TABLE job;--",
    " ",
]


def test_jobs_are_listed_oldest_first_or_newest_first_on_request(headway: Headway):
    ids = enqueue(*(new_job() for _ in range(3)))
    assert [job["id"] for job in headway("jobs", "--json").document["jobs"]] == ids
    newest = headway("jobs", "--json", "--newest").document["jobs"]
    assert [job["id"] for job in newest] == ids[::-1]
    assert [line.split()[0] for line in headway("jobs").out.splitlines()[1:]] == ids


def test_listing_continues_from_its_cursor(headway: Headway):
    ids = enqueue(*(new_job() for _ in range(5)))
    found: list[str] = []
    cursor: list[str] = []
    while True:
        page = headway("jobs", "--json", "--limit", "2", *cursor).document
        found += [job["id"] for job in page["jobs"]]
        if page["cursor"] is None:
            break
        cursor = ["--cursor", page["cursor"]]
    assert found == ids


def test_pages_without_a_job_are_passed_over(headway: Headway, monkeypatch: pytest.MonkeyPatch):
    enqueue(*(new_job() for _ in range(11)))
    (later,) = enqueue(new_job(due_at=4_000_000_000_000))
    monkeypatch.setattr("headway.stores.ledger.paging.MOST_EXAMINED", 2)
    found = headway("jobs", "--state", "scheduled", "--json").document
    assert ([job["id"] for job in found["jobs"]], found["cursor"]) == ([later], None)
    monkeypatch.setattr("headway.cli.commands.jobs.MOST_EMPTY", 3)
    listed = headway("jobs", "--state", "scheduled")
    assert "no jobs among those looked at" in listed.err
    rest = headway("jobs", "--state", "scheduled", "--cursor", listed.err.split()[-1])
    assert later in rest.out


def test_no_kind_is_called_unknown_before_all_jobs_were_looked_at(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    enqueue(new_job(kind="old", due_at=4_000_000_000_000), *(new_job() for _ in range(9)))
    monkeypatch.setattr("headway.stores.ledger.paging.MOST_EXAMINED", 2)
    monkeypatch.setattr("headway.cli.commands.jobs.MOST_EMPTY", 1)
    listed = headway("jobs", "--kind", "old", "--newest")
    assert "no jobs among those looked at" in listed.err
    assert "note:" not in listed.err


def test_page_with_a_successor_says_how_to_continue(headway: Headway):
    enqueue(*(new_job() for _ in range(3)))
    assert "--cursor " in headway("jobs", "--limit", "2").err
    assert headway("jobs", "--limit", "3000").code == 2


def test_jobs_are_found_by_each_filter(headway: Headway):
    fields = {
        "lane": "calls",
        "tenant": "acme",
        "kind": "call",
        "subject": "+15550100",
        "key": "once",
    }
    (wanted,) = enqueue(new_job(**fields))
    enqueue(new_job())
    for name, value in fields.items():
        tenant = ["--tenant", "acme"] if name in {"subject", "key"} else []
        found = headway("jobs", "--json", f"--{name}", value, *tenant).document["jobs"]
        assert [job["id"] for job in found] == [wanted]


def test_jobs_are_found_by_their_states(headway: Headway):
    enqueue(new_job(), new_job(), new_job(due_at=4_000_000_000_000))
    first, second = claim("main", n=2)
    settle(Succeeded(first.id, first.run), Died(second.id, second.run, reason="bad"))
    found = headway("jobs", "--json", "--state", "dead", "--state", "scheduled").document["jobs"]
    assert [job["state"] for job in found] == ["dead", "scheduled"]


def test_jobs_of_a_worker_are_those_it_holds(headway: Headway):
    enqueue(new_job(), new_job(), new_job())
    held = [one.id for one in claim("main", n=2)]
    found = headway("jobs", "--json", "--worker", WORKER).document["jobs"]
    assert [job["id"] for job in found] == held
    assert headway("jobs", "--json", "--worker", "v" * 32).document["jobs"] == []


@pytest.mark.parametrize("other", [["--cursor", "1"], ["--newest"], ["--lane", "main"]])
def test_jobs_of_a_worker_take_no_other_filter(headway: Headway, other: list[str]):
    headway("migrate")
    ran = headway("jobs", "--worker", WORKER, *other)
    assert (ran.code, ran.out) == (2, "")
    assert "cannot be combined with other filters (keep only --limit)" in ran.err


def test_waiting_and_running_jobs_are_found_below_many_others(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("headway.stores.ledger.paging.MOST_EXAMINED", 2)
    enqueue(*(new_job(due_at=4_000_000_000_000) for _ in range(9)))
    made = enqueue(new_job(lane="calls"), new_job(lane="calls"), new_job(lane="mail"))
    (held,) = claim("calls")
    for asked, expected in (
        (("--state", "running"), {held.id}),
        (("--state", "waiting"), {*made} - {held.id}),
        (("--state", "waiting", "--lane", "mail"), {made[2]}),
        (("--lane", "mail"), {made[2]}),
        (("--lane", "calls"), {*made[:2]}),
        (("--state", "waiting", "--kind", "other"), set()),
        (("--state", "waiting", "--state", "running", "--limit", "2"), None),
    ):
        found = [job["id"] for job in headway("jobs", "--json", *asked).document["jobs"]]
        assert {*found} == expected or (expected is None and len(found) == 2), asked


def test_jobs_of_a_subject_are_never_those_of_another(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("headway.stores.ledger.paging.MOST_EXAMINED", 2)
    enqueue(*(new_job(subject="ada", due_at=4_000_000_000_000) for _ in range(4)))
    enqueue(new_job(subject="bo"))
    found = headway("jobs", "--json", "--state", "waiting", "--subject", "ada").document
    assert found == {"jobs": [], "cursor": None}


@pytest.mark.parametrize("name", ["key", "subject"])
def test_keys_and_subjects_without_a_tenant_are_of_no_tenant(headway: Headway, name: str):
    (mine, theirs) = enqueue(new_job(**{name: "k"}), new_job(**{name: "k"}, tenant="acme"))
    found = headway("jobs", "--json", f"--{name}", "k").document["jobs"]
    assert [job["id"] for job in found] == [mine]
    found = headway("jobs", "--json", f"--{name}", "k", "--tenant", "acme").document["jobs"]
    assert [job["id"] for job in found] == [theirs]


def test_listing_shows_the_reason_rather_than_the_error(headway: Headway):
    enqueue(new_job())
    (run,) = claim("main")
    settle(Died(run.id, run.run, reason="no line", error="a traceback"))
    shown = headway("jobs").out
    assert "no line" in shown
    assert "traceback" not in shown


def test_empty_listing_is_reported_on_standard_error(headway: Headway):
    headway("migrate")
    ran = headway("jobs")
    assert (ran.code, ran.out, ran.err) == (0, "", "no jobs\n")
    assert headway("jobs", "--json").document == {"jobs": [], "cursor": None}


def test_job_as_json_has_every_field_of_its_view(headway: Headway):
    enqueue(new_job(args=b'{"a": [1, "x"]}'))
    (job,) = headway("jobs", "--json").document["jobs"]
    assert set(job) == set(JobView.__dataclass_fields__)
    assert job["args"] == {"a": [1, "x"]}
    assert job["state"] == State.WAITING


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_listed_on_one_line_and_found_again(headway: Headway, name: str):
    (wanted,) = enqueue(new_job(kind=name, lane=name, tenant=name, subject=name))
    ran = headway("jobs")
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 2
    assert all(line.isprintable() for line in ran.out.splitlines())
    found = headway("jobs", "--json", f"--lane={name}", f"--tenant={name}", f"--subject={name}")
    assert [job["id"] for job in found.document["jobs"]] == [wanted]


def test_jobs_of_an_app_are_those_in_its_store(headway: Headway, folder: Path):
    folder.joinpath("jobs_own.py").write_text(
        "import headway as hw\napp = hw.App('sqlite:///own.db')\nopen_one = hw.App('memory://')\n"
        "lent = hw.App(store=open_one.store)\n"
    )
    headway("send", "noop", "--lane", "mail", "--store", "sqlite:///own.db")
    headway("send", "noop", "--lane", "other", "--store", "sqlite:///third.db")
    ran = headway("jobs", "--app", "jobs_own.py", "--json")
    assert [job["lane"] for job in ran.document["jobs"]] == ["mail"]
    ran = headway("jobs", "--app", "jobs_own.py", "--store", "sqlite:///third.db", "--json")
    assert [job["lane"] for job in ran.document["jobs"]] == ["other"]
    ran = headway("jobs", "--app", "jobs_own.py:lent")
    assert ran.code == 2
    assert "was given an open store" in ran.err
