from __future__ import annotations

import os
import re
import select
import signal
import smtplib
import socket
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from email.message import EmailMessage

import httpx
import pytest

from examples.demo.mail_room.rules import Letters, letter_violations
from examples.demo.mail_room.sender import Letter
from headway.contract.views import JobView, RunView
from headway.lab.history import History, read_into
from headway.stores.open import open_store
from tests.examples.test_demo import LIMIT_S, Ran, read_until, started

pytestmark = pytest.mark.slow


@dataclass(frozen=True, kw_only=True)
class Live:
    """A running demo."""

    process: subprocess.Popen[str]
    http: httpx.Client
    smtp_port: int

    def end(self) -> tuple[int, str]:
        """Interrupt the demo; return its exit code, and the rest of its output."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, rest

    def post(self, to: str, title: str) -> None:
        """Deliver a message straight to the mail server, bypassing the demo."""
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = "x@example.org", to, title
        with smtplib.SMTP("127.0.0.1", self.smtp_port, timeout=LIMIT_S) as server:
            server.send_message(message)

    def pids(self) -> set[int]:
        """Return the pids of the workers that the server lists."""
        workers = self.http.get("/v1/workers").json()["rows"]
        place = rf"-{re.escape(socket.gethostname())}-(\d+)-"
        found = (re.search(place, one["name"]) for one in workers)
        return {int(one[1]) for one in found if one}


@contextmanager
def live() -> Generator[Live]:
    with started() as process:
        printed = read_until(process, r"smtp://")
        url = re.search(r"server is (http://\S+):", printed)
        port = re.search(r"smtp://127\.0\.0\.1:(\d+)", printed)
        assert url is not None
        assert port is not None
        with httpx.Client(base_url=url[1], timeout=LIMIT_S) as http:
            yield Live(process=process, http=http, smtp_port=int(port[1]))


def test_server_answers_during_the_demo_and_visitors_jobs_are_no_violation() -> None:
    with live() as demo:
        for path in ("/docs", "/openapi.json", "/healthz", "/readyz"):
            assert demo.http.get(path).status_code == 200
        assert "headway_" in demo.http.get("/metrics").text
        with demo.http.stream("GET", "/events") as events:
            assert next(events.iter_lines()).startswith(("event: whole", "id:"))
        lanes = {lane["lane"]: lane for lane in demo.http.get("/lanes").json()["lanes"]}
        assert lanes["send_email"]["latency"]["target_ms"] == 5_000
        letter = {"to": "me@example.org", "title": "Mine", "text": "Hello"}
        mine = {"lane": "send_email", "type": "send_email", "payload": letter}
        assert demo.http.post("/enqueue", json=mine).status_code == 201
        wrong = {**mine, "payload": {"to": "me@example.org"}}
        assert demo.http.post("/enqueue", json=wrong).status_code == 422
        code, rest = demo.end()
    assert code == 0, rest
    assert "0 violations" in rest


def test_letter_that_arrives_twice_without_a_death_gives_exit_code_1() -> None:
    with live() as demo:
        printed = read_until(demo.process, r"workers killed: [1-9]")
        assert re.search(r"[1-9]\d* of \d+ letters arrived", printed)
        done = demo.http.get("/v1/jobs", params={"lane": "send_email", "state": "succeeded"})
        job = next(one for one in done.json()["rows"] if one["run"] == 1)
        number = job["key"].removeprefix("letter-")
        demo.post("somebody@example.org", f"Letter {number}")
        code, rest = demo.end()
    assert code == 1, rest
    found = [line for line in rest.splitlines() if line.startswith("violation: ")]
    assert found == [
        f"violation: doubled letter: {number} arrived 2 times, and 0 workers died holding it"
    ]


def test_workers_exit_when_the_demo_is_killed() -> None:
    with live() as demo:
        read_until(demo.process, r"[1-9]\d* of \d+ letters arrived")
        assert demo.pids()
        pids = demo.pids()
        demo.process.kill()
        demo.process.wait(timeout=LIMIT_S)
    for pid in pids:
        _ended(pid)


def _ended(pid: int) -> None:
    """Wait until a process has exited, although it is not a child of this one."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], LIMIT_S)[0], f"{pid} lives"
    finally:
        os.close(descriptor)


# ------------------------------------------------------------------------------------- the rules


@pytest.fixture(scope="module")
def ran() -> Ran:
    return Ran("--for", "9", "--seed", "2")


@pytest.fixture
async def letters(ran: Ran) -> Letters:
    """Return what a real run left, with a mail server that accepted each letter once."""
    store = open_store(ran.url)
    history = History(start_at=0)
    await read_into(history, store)
    await store.close()
    accepted: dict[int, Letter] = {}
    for job in history.jobs:
        if job.key and job.key.startswith("letter-"):
            number = int(job.key.removeprefix("letter-"))
            is_mail = job.kind in {"send_email", "send_outreach"}
            accepted[number] = Letter(number=number, job=job.id, type=job.kind, is_mail=is_mail)
    return Letters(
        accepted=accepted,
        asked=max(accepted),
        taken={number: 1 for number, letter in accepted.items() if letter.is_mail},
        jobs={job.id: job for job in history.jobs},
        dead=(),
        faults=(),
    )


def rules(letters: Letters) -> set[str]:
    return {line.partition(":")[0] for line in letter_violations(letters)}


def first(letters: Letters, kind: str) -> Letter:
    return next(one for _, one in sorted(letters.accepted.items()) if one.type == kind)


def with_job(letters: Letters, letter: Letter, change: Callable[[JobView], JobView]) -> Letters:
    return replace(letters, jobs={**letters.jobs, letter.job: change(letters.jobs[letter.job])})


def test_real_run_breaks_no_rule_and_has_something_to_check(letters: Letters) -> None:
    assert rules(letters) == set()
    assert len(letters.taken) > 10
    unknown = [one for one in letters.accepted.values() if one.type.startswith("send_")]
    assert any(letters.jobs[one.job].state == "dead" for one in unknown)


def test_missing_letter_is_found(letters: Letters) -> None:
    number = first(letters, "send_email").number
    taken = {one: times for one, times in letters.taken.items() if one != number}
    assert rules(replace(letters, taken=taken)) == {"lost letter"}


def test_letter_may_arrive_once_more_for_each_worker_that_died_with_it(letters: Letters) -> None:
    letter = first(letters, "send_email")
    twice = replace(letters, taken={**letters.taken, letter.number: 2})
    assert rules(twice) == {"doubled letter"}

    def lose(job: JobView) -> JobView:
        lost: RunView = replace(job.runs[0], outcome="lost", worker="open.w1")
        return replace(job, runs=(lost, replace(job.runs[0], run=2)))

    assert rules(with_job(twice, letter, lose)) == {"doubled letter"}
    assert rules(replace(with_job(twice, letter, lose), dead={"open.w1"})) == set()


def test_mail_that_was_never_enqueued_is_found(letters: Letters) -> None:
    stray = {**letters.taken, letters.asked + 1: 1}
    assert rules(replace(letters, taken=stray)) == {"letter from nowhere"}


def test_lost_duplicate_or_unfinished_letter_in_the_store_is_found(
    letters: Letters,
) -> None:
    letter = first(letters, "send_email")
    without = {one: job for one, job in letters.jobs.items() if one != letter.job}
    assert rules(replace(letters, jobs=without)) == {"enqueue"}
    again = {**letters.jobs, "another": letters.jobs[letter.job]}
    assert rules(replace(letters, jobs=again)) == {"enqueue"}
    waiting = with_job(letters, letter, lambda job: replace(job, state="waiting"))
    assert rules(waiting) == {"not done"}
    assert rules(replace(letters, faults=("letter 1 sent again: 201",))) == {"enqueue"}


def test_unknown_type_that_is_not_dead_with_its_reason_is_found(letters: Letters) -> None:
    letter = next(
        one for one in letters.accepted.values() if one.type in {"send_fax", "send_pigeon"}
    )
    mute = with_job(letters, letter, lambda job: replace(job, reason="failed", error=""))
    assert rules(mute) == {"unknown type"}
    done = with_job(letters, letter, lambda job: replace(job, state="succeeded"))
    assert rules(done) == {"unknown type"}


def test_letter_started_before_an_older_one_is_found(letters: Letters) -> None:
    letter = [one for _, one in sorted(letters.accepted.items()) if one.type == "send_email"][1]

    def hurry(job: JobView) -> JobView:
        return replace(job, runs=(replace(job.runs[0], claimed_at=1), *job.runs[1:]))

    assert rules(with_job(letters, letter, hurry)) == {"order"}
