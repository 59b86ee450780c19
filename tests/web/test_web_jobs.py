"""Jobs: finding them, a job's own page, dead jobs by error, workers and the trail."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.contract.claims import Claimed, ClaimRequest
from headway.contract.definitions import DeclareGate, DefineRequest, Role
from headway.contract.outcomes import Died, Failed, HandedOver, Outcome, SettleRequest, Succeeded
from headway.contract.views import JobQuery, JobView, RunView
from headway.core.gates.pool import Pool
from headway.core.gates.slots import Slots
from headway.core.job import FollowUp, JobPolicy, NewJob, derived_id
from headway.core.retry import RetryPolicy
from headway.core.state import State
from headway.web.pages import jobs as jobs_page
from headway.web.pages.dead import error_of
from headway.web.pages.job import timeline
from headway.web.pages.jobs import carried
from headway.web.rendering import MOST_WHOLE
from tests.server.rig import Rig
from tests.servers.browser import browsing
from tests.web.rig import HOSTILE, dashboard, do, signed_in
from tests.web.test_web_access import declare
from tests.web.test_web_pages import Tags, plain

TRACEBACK = 'Traceback:\n  File "mail.py", line 7, in send\nTimeoutError: 7 s for ada@example.org'


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"


@asynccontextmanager
async def operating(url: str = "memory://") -> AsyncIterator[tuple[Rig, httpx.AsyncClient]]:
    async with dashboard(url) as rig, signed_in(rig, Role.OPERATOR) as http:
        yield rig, http


class Worker:
    """A worker that claims and settles by hand."""

    def __init__(self, rig: Rig, name: str = "w") -> None:
        self._rig, self._name, self._request = rig, name, 0

    async def take(self, lane: str, n: int = 1) -> list[Claimed]:
        self._request += 1
        reply = await self._rig.store.claim(
            ClaimRequest(
                worker=self._name,
                request=self._request,
                lanes=((lane, 1),),
                n=n,
                free=n,
                lease_ms=3_600_000,
            )
        )
        return list(reply.jobs)

    async def say(self, *outcomes: Outcome) -> None:
        await self._rig.store.settle(SettleRequest(worker=self._name, outcomes=outcomes))

    async def kill(self, lane: str, error: str = TRACEBACK, n: int = 1, reason: str = "no") -> None:
        for one in await self.take(lane, n):
            await self.say(Died(one.id, one.run, reason=reason, error=error))


async def job_of(rig: Rig, made: str) -> JobView:
    job = await rig.store.read(JobQuery(id=made))
    assert job is not None
    return job


async def text_of(http: httpx.AsyncClient, path: str, **params: str) -> str:
    reply = await http.get(path, params=params or None)
    assert reply.status_code == 200, reply.text
    return plain(reply.text)


async def ids_on(http: httpx.AsyncClient, path: str, **params: str) -> list[str]:
    """Return the ids of the jobs in a page's rows, in order."""
    reply = await http.get(path, params=params or None)
    assert reply.status_code == 200, reply.text
    rows = reply.text.partition('<div id="')[2].split('<tr data-key="')[1:]
    return [one.partition('"')[0] for one in rows]


async def test_jobs_are_found_by_each_filter_and_their_page_is_in_the_address(url: str):
    async with operating(url) as (rig, http):
        mine: dict[str, Any] = {
            "lane": "mail",
            "kind": "send_mail",
            "tenant": "acme",
            "key": "k1",
            "subject": "ada",
        }
        found = await rig.send(**mine)
        other = await rig.send(lane="calls", kind="call", tenant="umbra", key="k2", subject="bob")
        bare = await rig.send()
        assert await ids_on(http, "/ui/jobs") == [bare, other, found]
        assert await ids_on(http, "/ui/jobs", order="oldest") == [found, other, bare]
        for name in ("lane", "kind", "tenant"):
            assert await ids_on(http, "/ui/jobs", **{name: mine[name]}) == [found], name
        for name in ("key", "subject"):
            assert await ids_on(http, "/ui/jobs", tenant="acme", **{name: mine[name]}) == [found]
            page = await text_of(http, "/ui/jobs", **{name: mine[name]})
            assert "Keys and subjects belong to a tenant" in page
        assert await ids_on(http, "/ui/jobs", id=other) == [other]
        assert await ids_on(http, "/ui/jobs", id="nonsense") == []
        await Worker(rig).take("calls")
        assert await ids_on(http, "/ui/jobs", state="running") == [other]
        assert await ids_on(http, "/ui/jobs", state="waiting,running", lane="calls") == [other]
        assert "is not a state" in (await http.get("/ui/jobs?state=odd")).text


async def test_listing_continues_from_its_cursor_and_has_every_job_once(url: str):
    async with operating(url) as (rig, http):
        jobs = [await rig.send(lane="bulk") for _ in range(53)]
        reply = await http.get("/ui/jobs?lane=bulk")
        seen = await ids_on(http, "/ui/jobs", lane="bulk")
        after = reply.text.partition("cursor=")[2].partition('"')[0].partition("&")[0]
        seen += await ids_on(http, "/ui/jobs", lane="bulk", cursor=after)
        assert seen == jobs[::-1]
        refused = await http.get("/ui/jobs?cursor=no")
        assert (refused.status_code, "<h1>Not understood</h1>" in refused.text) == (422, True)


async def test_waiting_job_shows_why_and_its_place_in_line(url: str):
    async with operating(url) as (rig, http):
        await declare(rig, "lines", 1)
        jobs = [await rig.send(lane="calls", gates=["lines"]) for _ in range(3)]
        (holder,) = await Worker(rig).take("calls", 3)
        waiting = [one for one in jobs if one != holder.id]
        page = await text_of(http, f"/ui/jobs/{waiting[1]}")
        why = await rig.ask(Role.VIEWER, f"/v1/jobs/{waiting[1]}/why")
        told = why["sentence"].replace(holder.id, f"…{holder.id[-8:]}")
        assert told in page
        assert why["place"] == 2
        assert "place 2 in its flow" in page
        assert "lines is full (1 of 1)" in page
        assert "at a gate" in page


async def test_times_in_the_sentence_are_the_viewers_and_lookalikes_are_text():
    async with operating() as (rig, http):
        await declare(rig, "lines", 1)
        made = await rig.send(lane="calls", gates=["lines"])
        body = {"gate": "lines", "reason": "9999-99-99T99:99:99Z", "until": "20m"}
        await rig.call(Role.OPERATOR, "POST", "/v1/closures", body)
        reply = await http.get(f"/ui/jobs/{made}")
        assert reply.status_code == 200
        told = reply.text.partition('class="sentence"')[2].partition("</p>")[0]
        assert "(9999-99-99T99:99:99Z)" in told
        assert "data-when=" in told
        assert "(in <time" in told
        assert "T0" not in plain(told)


async def test_timeline_has_a_bar_for_each_run_and_each_error_with_its_traceback(url: str):
    async with operating(url) as (rig, http):
        made = await rig.send(lane="calls", retry={"attempts": 2, "base": "0s", "cap": "0s"})
        worker = Worker(rig)
        (first,) = await worker.take("calls")
        await worker.say(Failed(made, first.run, error=TRACEBACK, after_ms=0))
        (second,) = await worker.take("calls")
        await worker.say(HandedOver(made, second.run, key="at-provider"))
        reply = await http.get(f"/ui/jobs/{made}")
        page = plain(reply.text)
        assert "Run 1 attempt 1" in page
        assert "Run 2 attempt 2" in page
        assert "failed" in page
        assert "awaited its end" in page
        assert 'File "mail.py", line 7, in send' in page
        assert "<details" in reply.text
        assert "<details open" not in reply.text
        assert 'role="img" aria-label="' in reply.text
        assert 'class="awaiting"' in reply.text


def test_timeline_shows_how_each_part_of_the_time_was_spent():
    def run(number: int, **more: Any) -> RunView:
        facts: dict[str, Any] = {
            "run": number, "attempt": number, "stage": "", "worker": "w", "handed_at": None,
            "ended_at": None, "outcome": "", "error": "", "permits": {}, "blocked_ms": 0,
        }  # fmt: skip
        return RunView(**{**facts, **more})

    first = run(1, due_at=1_000, claimed_at=11_000, blocked_ms=7_000, ended_at=12_000)
    second = run(2, due_at=20_000, claimed_at=20_000, handed_at=21_000)
    job = replace(dead(""), runs=(first, second), state=State.AWAITING, created_at=1_000)
    one, two = timeline(job, now=25_000)
    assert [(span.what, span.ms, span.since) for span in one.spans] == [
        ("parked", 7_000, None),
        ("waiting", 3_000, None),
        ("running", 1_000, None),
    ]
    assert [(span.what, span.ms, span.since) for span in two.spans] == [
        ("running", 1_000, None),
        ("awaiting", 4_000, 21_000),
    ]
    # All bars have the same scale: the longest line fills its width.
    assert sum(part for what, part in one.parts if what != "ground") == pytest.approx(1, abs=0.01)
    assert dict(two.parts)["ground"] == pytest.approx(6 / 11, abs=0.02)
    waiting = replace(job, runs=(), state=State.WAITING, due_at=5_000)
    (now,) = timeline(waiting, now=9_000)
    assert now.run is None
    assert [(one.what, one.ms, one.since) for one in now.spans] == [("waiting", 4_000, 5_000)]
    blocked = timeline(replace(waiting, shown="blocked"), now=9_000)
    assert blocked[0].spans[0].what == "parked"
    assert timeline(replace(waiting, state=State.SCHEDULED), now=1) == []


async def test_arguments_are_shown_with_their_secrets_masked(url: str):
    async with operating(url) as (rig, http):
        args = {"to": "ada", "password": "hunter2", "deep": [{"api_key": "s3cret"}]}
        made = await rig.send(args=args)
        reply = await http.get(f"/ui/jobs/{made}")
        assert "hunter2" not in reply.text
        assert "s3cret" not in reply.text
        assert '"password": "[hidden]"' in plain(reply.text)
        assert '"to": "ada"' in plain(reply.text)
        form = await http.get(f"/ui/-/do/edit-job?job={made}")
        assert "hunter2" not in form.text
        assert "[hidden]" not in form.text


@pytest.mark.parametrize("many", ["values", "keys", "characters", "levels", "empty"])
def test_only_the_beginning_of_large_data_is_masked_and_shown(many: str):
    n = 200_000
    value: Any = {
        "values": [{"password": "hunter2"}] * (n // 20),
        "keys": {f"password {i}": "hunter2" for i in range(n // 20)},
        "characters": "password=hunter2 " * (n // 17),
        "empty": [{"password": "hunter2"}, *([[]] * (n // 4))],
        "levels": [[[1, 2, None], {"password": ["hunter2"]}]] * (n // 40),
    }[many]
    text = carried(json.dumps({"first": 1, "data": value}).encode())
    assert text.startswith('{\n  "first": 1,\n  "data": ')
    assert MOST_WHOLE < len(text) < 20 * MOST_WHOLE
    assert "hunter2" not in text
    assert "[hidden]" in text


async def test_follow_ups_of_a_job_and_their_cause_link_to_each_other():
    async with operating() as (rig, http):
        policy = JobPolicy(on_final=FollowUp(kind="tell", lane="later"))
        made = "0197f2a0-6f5b-7c3e-9d55-0d3c1f0f8a11"
        await rig.store.enqueue([NewJob(id=made, kind="call", lane="calls", policy=policy)])
        await Worker(rig).kill("calls")
        follows = derived_id("on_final", made, 1)
        assert f'href="/ui/jobs/{follows}"' in (await http.get(f"/ui/jobs/{made}")).text
        assert f'href="/ui/jobs/{made}"' in (await http.get(f"/ui/jobs/{follows}")).text
        # A job that merely claims to follow another is not shown as following it.
        liar = await rig.send(args={"job": made})
        assert f'href="/ui/jobs/{made}"' not in (await http.get(f"/ui/jobs/{liar}")).text


async def test_job_is_cancelled_made_due_edited_and_retried_with_other_arguments(url: str):
    async with operating(url) as (rig, http):
        made = await rig.send(lane="calls", due="1h", args={"n": 1})
        page = f"/ui/jobs/{made}"
        assert "Run now…" in await text_of(http, page)
        reply = await do(
            http, f"/ui/-/do/run-job-now?job={made}&back={page}", reason="it is urgent"
        )
        assert reply.headers["location"] == page
        assert "The job is due now: it is waiting." in await text_of(http, page)
        assert "it is urgent" in await text_of(http, page)
        assert "Run now" in await text_of(http, page)
        path = f"/ui/-/do/edit-job?job={made}"
        assert "n&#34;: 1" in (await http.get(path)).text
        await do(http, path, args='{"n": 2}', priority="7")
        job = await job_of(rig, made)
        assert (json.loads(job.args), job.priority) == ({"n": 2}, 7)
        assert '"n": 2' in await text_of(http, page)
        await do(http, f"/ui/-/do/cancel-job?job={made}", reason="no more")
        assert (await job_of(rig, made)).state is State.CANCELLED
        text = await text_of(http, page)
        assert "Edit and retry…" in text
        assert "Cancel…" not in text
        reply = await do(http, f"/ui/-/do/edit-and-retry-job?job={made}", args='{"n": 3}', due="2h")
        assert reply.status_code == 303
        job = await job_of(rig, made)
        assert (job.state, job.life, json.loads(job.args)) == (State.SCHEDULED, 2, {"n": 3})
        assert "life 2" in await text_of(http, page)


async def test_search_shows_the_change_of_an_action_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs_page, "FILTERED_S", 3_600)
    async with operating() as (rig, http):
        made = await rig.send()
        assert await ids_on(http, "/ui/jobs", state="waiting") == [made]
        await do(http, f"/ui/-/do/cancel-job?job={made}")
        assert await ids_on(http, "/ui/jobs", state="waiting") == []


async def test_invalid_or_masked_arguments_are_refused_in_the_form():
    async with operating() as (rig, http):
        made = await rig.send(args={"n": 1})
        for text, told in (
            ("[1]", "not a JSON object"),
            ("{", "not a JSON object"),
            ('{"password": "[hidden]"}', "represents a secret"),
        ):
            reply = await do(http, f"/ui/-/do/edit-job?job={made}", args=text)
            assert reply.status_code == 422
            assert told in plain(reply.text)
            assert json.loads((await job_of(rig, made)).args) == {"n": 1}
        reply = await do(http, f"/ui/-/do/edit-job?job={made}", args='{"n": 2}', priority="--5")
        assert reply.status_code == 422
        long = json.dumps({"text": "y" * 9_000})
        await do(http, f"/ui/-/do/edit-job?job={made}", args=long)
        assert (await job_of(rig, made)).args == json.dumps(
            json.loads(long), separators=(",", ":")
        ).encode()


async def test_action_leads_back_to_the_page_of_its_job():
    async with operating() as (rig, http):
        made = await rig.send()
        reply = await http.get(f"/ui/jobs/{made}")
        assert f"back=%2Fui%2Fjobs%2F{made}" in reply.text


def test_errors_with_one_cause_are_grouped_whatever_varies_in_them():
    same = {
        error_of(dead(f"Traceback:\n  line 4\nTimeoutError: {text}"))
        for text in ("7 s for ada@example.org", "12.5 s for bob@example.com")
    }
    assert same == {"TimeoutError: <n> s for <address>"}
    assert error_of(dead("", "no answer at 0x7f3a")) == "no answer at <hex>"
    assert error_of(dead("job 0197f2a0-6f5b-7c3e-9d55-0d3c1f0f8a11 is away")) == "job <id> is away"
    assert error_of(dead("")) == "no reason is known"
    assert error_of(dead("no way in: password=hunter2")) == "no way in: password=[hidden]"
    assert error_of(dead("KeyError: a")) != error_of(dead("KeyError: b"))


def dead(error: str, reason: str = "") -> JobView:
    return JobView(
        id="i", kind="k", lane="l", tenant="", subject=None, stage="", state=State.DEAD,
        shown="dead", priority=1, due_at=0, created_at=0, expires_at=None, finished_at=0,
        deadline_at=None, args=b"{}", result=None, progress=None, key=None, gates=(),
        policy=JobPolicy(retry=RetryPolicy()), run=1, attempt=1, life=1, reason=reason,
        error=error, parked_at=None, worker=None, cancel_requested=False, in_doubt=False,
        entry=None, fired_at=None, cascade=None, seq=1,
    )  # fmt: skip


async def test_dead_jobs_are_grouped_by_error_and_one_many_or_all_of_a_filter_are_retried(url: str):
    async with operating(url) as (rig, http):
        worker = Worker(rig)
        for lane, n in (("mail", 4), ("sms", 2)):
            for _ in range(n):
                await rig.send(lane=lane)
            for i in range(n):
                await worker.kill(lane, f"boom\nTimeoutError: after {i} s")
        await rig.send(lane="mail")
        await worker.kill("mail", "KeyError: 'to'")
        reply = await http.get("/ui/dead")
        text = plain(reply.text)
        assert "7 dead jobs" in text
        assert "6 jobs TimeoutError: after <n> s" in text
        assert "1 job KeyError: 'to'" in text
        assert text.index("6 jobs") < text.index("1 job KeyError")
        assert "name a lane, kind or tenant" in text
        digest = reply.text.partition("error=")[2][:12]
        group = "/ui/dead?error=" + digest
        ids = await ids_on(http, group)
        assert len(ids) == 6
        assert "Retry these 6…" in await text_of(http, group)
        # One job.
        await do(http, f"/ui/-/do/retry-job?job={ids[0]}")
        assert (await job_of(rig, ids[0])).state is State.WAITING
        assert len(await ids_on(http, group)) == 5
        # Many, as sent by a browser with ticked boxes.
        many = f"/ui/-/do/retry-jobs?ids={ids[1]}&ids={ids[2]}"
        assert "Retry 2 dead jobs" in await text_of(http, many)
        reply = await do(http, many, reason="the server is back")
        assert "2 retried" in await text_of(http, reply.headers["location"])
        for one in ids[1:3]:
            job = await job_of(rig, one)
            assert (job.state, job.life) == (State.WAITING, 2)
            assert job.trail[-1].reason == "the server is back"
        refused = await http.get("/ui/-/do/retry-jobs?ids=")
        assert refused.status_code == 422
        assert "no job is selected" in refused.text
        # All that match a filter: the page asks for confirmation first, and shows the count.
        left = await ids_on(http, "/ui/dead", lane="mail", error=digest)
        path = "/ui/-/do/retry-all-dead?lane=mail"
        asked = await text_of(http, path)
        assert f"Retry all {len(left) + 1} dead jobs of lane mail" in asked
        assert "4 dead jobs" in await text_of(http, "/ui/dead")
        assert f'name="limit" value="{len(left) + 1}"' in (await http.get(path)).text
        await do(http, path, reason="all", limit=str(len(left) + 1))
        for one in left:
            assert (await job_of(rig, one)).state is State.WAITING
        assert "No job is dead that matches." in await text_of(http, "/ui/dead", lane="mail")


async def test_listing_has_the_beginning_of_a_long_error_and_the_jobs_page_all_of_it(url: str):
    async with operating(url) as (rig, http):
        await rig.send(lane="mail")
        await Worker(rig).kill("mail", "no route " + "e" * 15_000)
        text = (await http.get("/ui/jobs", params={"state": "dead"})).text
        assert "no route eee" in text
        assert "e" * 1_100 not in text
        (made,) = await ids_on(http, "/ui/jobs", state="dead")
        assert "e" * 15_000 in (await http.get(f"/ui/jobs/{made}")).text


async def test_counts_of_dead_jobs_say_of_how_many_they_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headway.web.pages.dead.SAMPLE", 3)
    monkeypatch.setattr("headway.web.pages.dead.COUNTED", 4)
    async with operating() as (rig, http):
        worker = Worker(rig)
        for _ in range(5):
            await rig.send(lane="mail", kind="post")
            await worker.kill("mail", "boom")
        text = await text_of(http, "/ui/dead")
        assert "5 dead jobs; the errors are those of the 3 newest" in text
        assert "3 jobs boom" in text
        assert "of the 3 newest that were found: there may be more" in await text_of(
            http, "/ui/dead", kind="post"
        )
        asked = await text_of(http, "/ui/-/do/retry-all-dead", kind="post")
        assert "Retry the first 4 dead jobs of kind post" in asked
        after = (await http.get("/ui/dead")).text.partition("cursor=")[2].partition('"')[0]
        assert "2 jobs boom" in await text_of(http, "/ui/dead", cursor=after)


async def test_workers_show_what_each_runs_and_since_when(url: str):
    async with operating(url) as (rig, http):
        await rig.send(lane="calls", kind="dial")
        await rig.send(lane="mail")
        ada, bob = Worker(rig, "ada"), Worker(rig, "bob")
        (job,) = await ada.take("calls")
        (his,) = await bob.take("mail")
        text = await text_of(http, "/ui/workers")
        assert his.id[-8:] in text.partition("bob")[2]
        assert "2 live, 2 jobs in progress" in text
        ada_row = text.partition("ada")[2].partition("bob")[0]
        assert job.id[-8:] in ada_row
        assert "dial for" in ada_row
        assert "calls" in ada_row
        assert "bob" not in (await text_of(http, "/ui/workers", q="calls")).partition("Worker")[2]


async def test_listing_that_finds_no_matching_job_continues_from_either_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("headway.stores.ledger.paging.MOST_EXAMINED", 2)
    async with operating(f"sqlite:///{tmp_path / 'jobs.db'}") as (rig, http):
        ended = await rig.send(lane="calls")
        worker = Worker(rig, "ada")
        (job,) = await worker.take("calls")
        await worker.say(Succeeded(job.id, job.run, result=None))
        for _ in range(9):
            await rig.send(lane="later", due="1h")
        reply = await http.get("/ui/jobs?state=succeeded")
        text = plain(reply.text)
        assert "None so far: only a bounded number of jobs was examined." in text
        assert "Look from the oldest" in text
        assert await ids_on(http, "/ui/jobs", state="succeeded", order="oldest") == [ended]
        assert await ids_on(http, "/ui/jobs", state="cancelled") == []
        # Every page is eventually reached.
        found: list[str] = []
        path = "/ui/jobs?state=succeeded"
        while "cursor=" in reply.text and not found:
            after = reply.text.partition("cursor=")[2].partition('"')[0].partition("&")[0]
            found = await ids_on(http, "/ui/jobs", state="succeeded", cursor=after)
            reply = await http.get(f"{path}&cursor={after}")
        assert found == [ended]


async def among_many(rig: Rig, worker: Worker) -> tuple[str, str, list[str]]:
    """Create two running jobs, one waiting for a line, two parked at a phone, and nine others.

    The nine have ended or are due later; they come before and after the others.

    Returns:
        The running job that holds the line, the waiting one, the parked ones.
    """
    await rig.store.define(
        DefineRequest(
            items=(
                DeclareGate(spec=Slots("lines", 1)),
                DeclareGate(spec=Slots("phone:{phone}", 1)),
            ),
            author="a test",
        )
    )
    ended = [await rig.send(lane="mail") for _ in range(9)]
    for job in ended:
        await rig.call(Role.OPERATOR, "POST", f"/v1/jobs/{job}/cancel", {})
    held, waiting = [
        await rig.send(lane="calls", kind="call", gates=["lines"], tenant="acme", due="0s")
        for _ in range(2)
    ]
    phone: dict[str, Any] = {"gates": ["phone:{phone}"], "args": {"phone": "1"}}
    dialled = [await rig.send(lane="dial", kind="dial", tenant="acme", **phone) for _ in range(3)]
    for _ in range(9):
        await rig.send(lane="later", due="1h")
    assert [one.id for one in await worker.take("calls", 9)] == [held]
    assert [one.id for one in await worker.take("dial", 9)] == dialled[:1]
    return held, waiting, dialled[1:]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_live_jobs_are_found_among_many_that_ended_or_are_due_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: str
):
    monkeypatch.setattr("headway.stores.ledger.paging.MOST_EXAMINED", 2)
    monkeypatch.setattr("headway.stores.memory.jobs.MOST_EXAMINED", 2)
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    async with operating(url) as (rig, http):
        held, waiting, parked = await among_many(rig, Worker(rig, "ada"))
        for state, order in product(("waiting", "parked", "running"), ("", "oldest")):
            expected = {"waiting": {waiting}, "parked": {*parked}}.get(state)
            found = await ids_on(http, "/ui/jobs", state=state, order=order)
            assert len(found) == len({*found})
            assert expected is None or {*found} == expected
            assert expected is not None or held in found
        assert await ids_on(http, "/ui/jobs", state="waiting", tenant="acme") == [waiting]
        assert await ids_on(http, "/ui/jobs", state="waiting", tenant="another") == []
        assert await ids_on(http, "/ui/jobs", state="waiting", lane="dial") == []
        assert await ids_on(http, "/ui/jobs", state="parked", kind="call") == []
        assert held[-8:] in await text_of(http, "/ui/workers")
        assert waiting[-8:] in await text_of(http, "/ui/gates", gate="lines")
        shown = await text_of(http, "/ui/gates", gate="phone:1")
        assert "Waiting2parked at this gate" in shown
        assert all(one[-8:] in shown for one in parked)
        now = await text_of(http, "/ui")
        held_up = now.partition("Held up")[2].partition("Throughput")[0]
        assert re.search(r"1 job\s+slots lines\s+is full", held_up)
        assert re.search(r"2 jobs\s+slots phone:1\s+is full", held_up)
        for lane, waiting_and_running in (("calls", "11"), ("dial", "21")):
            text = await text_of(http, "/ui/lanes", lane=lane)
            shares = text.partition("Share by tenant")[2]
            assert re.search(rf"WaitingIn progress\s+acme\W{waiting_and_running}", shares)


async def test_scoped_tokens_find_only_their_own_live_jobs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headway.stores.memory.jobs.MOST_EXAMINED", 2)
    monkeypatch.setattr("headway.server.finding.MOST_LANES", 2)
    async with dashboard() as rig:
        held, waiting, parked = await among_many(rig, Worker(rig, "ada"))
        for n in range(24):
            await rig.send(lane=f"busy-{n % 4}", tenant="umbra", due="0s")
        umbra = [await rig.send(lane="calls", tenant="umbra", gates=["lines"]) for _ in range(3)]
        phone: dict[str, Any] = {"gates": ["phone:{phone}"], "args": {"phone": "2"}}
        await rig.send(lane="dial", tenant="umbra", **phone)
        other = await rig.send(lane="dial", tenant="umbra", **phone)
        await Worker(rig, "bob").take("dial", 9)
        for _ in range(9):
            await rig.send(lane="later", due="1h")
        acme = await rig.token(Role.VIEWER, name="acme", tenants=["acme"])
        async with signed_in(rig, acme) as http:
            assert await ids_on(http, "/ui/jobs", state="parked") == parked
            assert held in await ids_on(http, "/ui/jobs", state="running")
            found = await ids_on(http, "/ui/jobs", state="waiting,parked,running")
            assert not {*found} & {*umbra, other}
            for path in ("/ui/gates", "/ui/workers", "/ui/lanes?lane=calls"):
                assert (await http.get(path)).status_code == 403
        lane = await rig.token(Role.VIEWER, name="calls", lanes=["calls"])
        async with signed_in(rig, lane) as http:
            # Other lanes with more jobs do not hide this one's.
            found = await ids_on(http, "/ui/jobs", state="waiting")
            assert {*found} == {waiting, *umbra}
            assert await ids_on(http, "/ui/jobs", state="running") == [held]
            assert await ids_on(http, "/ui/jobs", state="parked") == []
        lane = await rig.token(Role.VIEWER, name="dial", lanes=["dial"])
        async with signed_in(rig, lane) as http:
            assert {*await ids_on(http, "/ui/jobs", state="parked")} == {*parked, other}
            held_up = (await text_of(http, "/ui")).partition("Held up")[2]
            assert re.search(r"3 jobs\s+slots phone:\{phone\}", held_up)
            assert "lines" not in held_up


async def test_jobs_waiting_for_a_keyed_pool_are_shown_at_each_of_its_members():
    async with operating() as (rig, http):
        pool = Pool("numbers:{agent}", {"a": 1, "b": 1})
        items = (DeclareGate(spec=pool),)
        await rig.store.define(DefineRequest(items=items, author="a test"))
        number: dict[str, Any] = {"gates": ["numbers:{agent}"], "args": {"agent": "ann"}}
        made = [await rig.send(lane="calls", **number) for _ in range(3)]
        assert len(await Worker(rig).take("calls", 9)) == 2
        for name in ("numbers:ann", "numbers:ann/a", "numbers:ann/b"):
            text = await text_of(http, "/ui/gates", gate=name)
            assert "Waiting1parked at this gate" in text
            assert made[2][-8:] in text.partition("Waiting for it")[2]


async def test_handed_over_jobs_are_in_progress_and_do_not_run():
    async with operating() as (rig, http):
        worker = Worker(rig)
        for _ in range(3):
            await rig.send(lane="calls")
        handed, *_ = await worker.take("calls", 3)
        await worker.say(HandedOver(handed.id, handed.run, key="k", timeout_ms=60_000))
        now = await text_of(http, "/ui")
        assert "Running 2 on 1 worker 1 handed over" in " ".join(now.split())
        lanes = (await http.get("/ui/lanes")).text
        assert "In progress" in lanes
        assert plain(lanes).count("Running") == 0


async def test_worker_without_a_job_runs_nothing():
    async with operating() as (rig, http):
        await rig.send(lane="calls")
        ada = Worker(rig, "ada")
        (job,) = await ada.take("calls")
        await ada.say(Succeeded(job.id, job.run))
        assert "ada nothing calls" in await text_of(http, "/ui/workers")


async def test_trail_shows_who_did_what_of_one_target_or_by_one_author(url: str):
    async with operating(url) as (rig, http):
        await declare(rig, "lines", 1)
        made = await rig.send(due="1h")
        await do(http, "/ui/-/do/close-gate?gate=lines", reason="noon")
        await do(http, f"/ui/-/do/cancel-job?job={made}", reason="no more")
        text = await text_of(http, "/ui/trail")
        assert text.index("no more") < text.index("noon")
        only = await text_of(http, "/ui/trail", target="lines")
        assert "noon" in only
        assert "no more" not in only
        reply = await http.get("/ui/trail", params={"target": made})
        assert f'href="/ui/jobs/{made}"' in reply.text
        assert "noon" not in reply.text
        by = await text_of(http, "/ui/trail", author="a test")
        assert "declare gate" in by
        assert "noon" not in by
        assert "No line matches" in await text_of(http, "/ui/trail", author="nobody")


async def test_trail_continues_from_its_cursor():
    async with operating() as (rig, http):
        made = await rig.send(due="1h")
        for n in range(55):
            body = {"priority": n, "reason": f"why {n}."}
            await rig.call(Role.OPERATOR, "POST", f"/v1/jobs/{made}/edit", body)
        for params in ({"target": made}, {"target": made, "author": "operator"}):
            reply = await http.get("/ui/trail", params=params)
            assert "why 54." in reply.text
            assert "why 5." in reply.text
            assert "why 4." not in reply.text
            after = reply.text.partition("cursor=")[2].partition('"')[0].partition("&")[0]
            rest = await text_of(http, "/ui/trail", cursor=after, **params)
            assert "why 4." in rest
            assert "why 5." not in rest


async def test_viewer_sees_every_page_without_a_button():
    async with dashboard() as rig, signed_in(rig, Role.VIEWER) as http:
        await rig.send(lane="mail")
        await Worker(rig).kill("mail")
        made = await rig.send(lane="mail", due="1h")
        reply = await http.get("/ui/dead")
        digest = reply.text.partition("error=")[2][:12]
        for path in (
            "/ui/jobs",
            f"/ui/jobs/{made}",
            "/ui/dead",
            "/ui/dead?lane=mail",
            f"/ui/dead?error={digest}",
            "/ui/workers",
            "/ui/trail",
        ):
            reply = await http.get(path)
            assert reply.status_code == 200
            assert "data-ask" not in reply.text, path
            assert "checkbox" not in reply.text, path
            assert "Retry" not in plain(reply.text), path
        form = await http.get(f"/ui/-/do/cancel-job?job={made}")
        assert form.status_code == 403


async def test_tenants_token_sees_and_moves_only_its_own_jobs(url: str):
    async with dashboard(url) as rig:
        own = await rig.send(lane="mail", tenant="acme", kind="own")
        other = await rig.send(lane="mail", tenant="umbra", kind="other")
        text = await rig.token(Role.OPERATOR, name="acme", tenants=["acme"])
        async with signed_in(rig, text) as http:
            assert await ids_on(http, "/ui/jobs") == [own]
            assert await ids_on(http, "/ui/jobs", lane="mail") == [own]
            # The store has no counts of a tenant's jobs.
            assert "waiting <b>" not in (await http.get("/ui/jobs?lane=mail")).text
            assert (await http.get("/ui/jobs?tenant=umbra")).status_code == 403
            assert await ids_on(http, "/ui/jobs", id=other) == []
            assert (await http.get(f"/ui/jobs/{own}")).status_code == 200
            assert (await http.get(f"/ui/jobs/{other}")).status_code == 404
            for name in ("cancel-job", "run-job-now", "edit-job"):
                path = f"/ui/-/do/{name}"
                form = await http.get(path, params={"job": own})
                assert form.status_code == 200
                token = form.text.partition('name="form" value="')[2].partition('"')[0]
                data = {"form": token, "job": other, "priority": "1"}
                assert (await http.post(path, data=data)).status_code == 404, name
            assert (await http.get(f"/ui/-/do/edit-job?job={other}")).status_code == 404
            assert (await job_of(rig, other)).state is State.WAITING
            worker = Worker(rig)
            await worker.kill("mail", n=2)
            assert "1 dead job" in await text_of(http, "/ui/dead")
            assert (await http.get("/ui/dead?tenant=umbra")).status_code == 403
            for path in ("/ui/workers", "/ui/trail"):
                assert (await http.get(path)).status_code == 403
            await do(http, f"/ui/-/do/retry-jobs?ids={own},{other}")
            await do(http, "/ui/-/do/retry-all-dead?tenant=acme", limit="9")
            assert (await job_of(rig, own)).state is State.WAITING
            assert (await job_of(rig, other)).state is State.DEAD


async def test_lanes_token_sees_only_the_jobs_of_its_lanes():
    async with dashboard() as rig:
        own, other = await rig.send(lane="mail-1"), await rig.send(lane="calls")
        text = await rig.token(Role.OPERATOR, name="mailer", lanes=["mail-*"])
        async with signed_in(rig, text) as http:
            assert await ids_on(http, "/ui/jobs") == [own]
            # Jobs by state are counted for all lanes together, or for one.
            assert "waiting <b>" not in (await http.get("/ui/jobs")).text
            assert "waiting <b>1</b></a>" in (await http.get("/ui/jobs?lane=mail-1")).text
            assert (await http.get("/ui/jobs?lane=calls")).status_code == 403
            assert (await http.get(f"/ui/jobs/{other}")).status_code == 404
            assert (await http.get("/ui/dead?lane=calls")).status_code == 403
            worker = Worker(rig)
            await worker.kill("mail-1", "boom")
            await worker.kill("calls", "boom")
            # Nothing is shown from what a token for all lanes has read before.
            async with signed_in(rig, Role.OPERATOR) as whole:
                assert "2 jobs boom" in await text_of(whole, "/ui/dead")
            reply = await http.get("/ui/dead")
            assert "1 job boom" in plain(reply.text)
            digest = reply.text.partition("error=")[2][:12]
            assert await ids_on(http, "/ui/dead", error=digest) == [own]
            asked = await text_of(http, "/ui/-/do/retry-all-dead", kind="noop")
            assert "Retry all 1 dead jobs of kind noop" in asked


async def test_follow_ups_are_shown_only_to_those_who_may_see_them():
    async with dashboard() as rig:
        policy = JobPolicy(on_final=FollowUp(kind="tell", lane="later"))
        made = "0197f2a0-6f5b-7c3e-9d55-0d3c1f0f8a11"
        await rig.store.enqueue([NewJob(id=made, kind="call", lane="calls", policy=policy)])
        await Worker(rig).kill("calls")
        follows = derived_id("on_final", made, 1)
        for lane, own, other in (("calls", made, follows), ("later", follows, made)):
            text = await rig.token(Role.VIEWER, name=lane, lanes=[lane])
            async with signed_in(rig, text) as http:
                reply = await http.get(f"/ui/jobs/{own}")
                assert reply.status_code == 200
                assert f"/ui/jobs/{other}" not in reply.text


async def test_token_of_several_tenants_chooses_one():
    async with dashboard() as rig:
        first = await rig.send(tenant="acme")
        second = await rig.send(tenant="umbra")
        text = await rig.token(Role.VIEWER, name="two", tenants=["acme", "umbra"])
        async with signed_in(rig, text) as http:
            assert await ids_on(http, "/ui/jobs") == [first]
            assert await ids_on(http, "/ui/jobs", tenant="umbra") == [second]


async def test_hostile_texts_in_every_field_of_a_job_are_shown_as_text():
    async with operating() as (rig, http):
        worker = Worker(rig, "w" + HOSTILE[1])
        for i, evil in enumerate((*HOSTILE, "<b9>" * 125)):
            lane, key = f"l{i} {evil}"[:512], f"k{i} {evil}"[:512]
            job = {"lane": lane, "kind": evil, "tenant": evil, "subject": evil, "key": key}
            made = await rig.send(**job, args={evil: [evil], "html": evil})
            await worker.kill(lane, f"Traceback {evil}\nError: {evil}", reason=evil[:100])
            await rig.call(Role.OPERATOR, "POST", f"/v1/jobs/{made}/retry", {"reason": evil})
            await worker.kill(lane, f"Traceback {evil}\nError: {evil}", reason=evil[:100])
            reply = await http.get("/ui/dead", params={"lane": lane})
            digest = reply.text.partition("error=")[2][:12]
            for path, query in (
                ("/ui/jobs", {}),
                ("/ui/jobs", {one: job[one] for one in ("tenant", "key")}),
                ("/ui/jobs", {one: job[one] for one in ("lane", "kind", "tenant", "subject")}),
                (f"/ui/jobs/{made}", {}),
                ("/ui/dead", {"lane": lane}),
                ("/ui/dead", {"error": digest, "lane": lane}),
                ("/ui/workers", {}),
                ("/ui/workers", {"q": evil}),
                ("/ui/trail", {}),
                ("/ui/trail", {"author": evil, "target": evil}),
                (f"/ui/-/do/edit-and-retry-job?job={made}", {}),
                ("/ui/-/do/retry-all-dead", {"lane": lane}),
            ):
                reply = await http.get(path, params=query or None)
                assert reply.status_code == 200, (path, query, reply.text[-300:])
                seen = Tags(reply.text)
                assert seen.scripts == 1
                assert not {"img", "b9"} & seen.names
                assert not [one for one in seen.attributes if one.startswith("on")]
                assert not [one for one in seen.links if one.startswith("javascript")]
                for sign in ("\x1b", "\x07", "\N{RIGHT-TO-LEFT OVERRIDE}"):
                    assert sign not in seen.text + seen.labels, (path, sign)


async def test_menu_marks_the_open_page_even_for_a_page_below_it():
    async with operating() as (rig, http):
        made = await rig.send()
        for path, current in (
            ("/ui/jobs", 'href="/ui/jobs" aria-current="page"'),
            (f"/ui/jobs/{made}", 'href="/ui/jobs" aria-current="true"'),
            ("/ui", 'href="/ui" aria-current="page"'),
        ):
            menu = (await http.get(path)).text.partition("</nav>")[0]
            assert current in menu
            assert menu.count("aria-current") == 1


@pytest.mark.slow
async def test_ticked_jobs_are_retried_in_a_browser_and_another_browser_sees_it(url: str):
    async with dashboard(url, tokens=False) as rig, browsing() as browser:
        worker = Worker(rig)
        for _ in range(3):
            await rig.send(None, lane="mail")
            await worker.kill("mail", "boom")
        digest = (await rig.http.get("/ui/dead")).text.partition("error=")[2][:12]
        one, two = await browser.new_page(), await browser.new_page()
        await two.goto(f"{rig.url}/ui/dead")
        await two.wait_for_selector("text=3 dead jobs")
        await one.goto(f"{rig.url}/ui/dead?error={digest}")
        await one.wait_for_selector("#link.live")
        boxes = one.locator("input[name=ids]")
        ticked = [await boxes.nth(i).get_attribute("value") for i in range(2)]
        await boxes.nth(0).check()
        await boxes.nth(1).check()
        # Ticks stay when the page changes below them.
        await rig.send(None, lane="mail")
        await worker.kill("mail", "boom")
        await one.wait_for_selector("text=4 of the 4 dead jobs")
        assert await one.locator("input[name=ids]:checked").count() == 2
        await one.click("text=Retry selected…")
        await one.wait_for_selector("text=Retry 2 dead jobs")
        await one.fill("[name=reason]", "the server is back")
        await one.click("form.ask button.primary")
        await one.wait_for_selector("text=2 retried")
        await two.wait_for_selector("text=2 dead jobs")
        for made in ticked:
            assert (await job_of(rig, made or "")).state is State.WAITING


@pytest.mark.slow
async def test_job_is_edited_and_retried_in_a_browser_and_no_text_of_it_runs():
    async with dashboard(tokens=False) as rig, browsing() as browser:
        evil = " ".join(HOSTILE[:3])
        made = await rig.send(None, lane="mail", kind=evil, tenant=evil, args={"text": evil})
        await Worker(rig).kill("mail", f"Traceback\n{evil}", reason=evil)
        page = await browser.new_page(viewport={"width": 375, "height": 800})
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        for path in ("/ui/jobs", "/ui/dead", "/ui/workers", "/ui/trail", f"/ui/jobs/{made}"):
            await page.goto(f"{rig.url}{path}")
            await page.wait_for_selector("#link.live")
            assert await page.evaluate("window.evil") is None
            assert await page.evaluate("document.documentElement.scrollWidth") <= 375, path
        await page.click("text=Edit and retry…")
        await page.fill("dialog textarea", '{"text": "harmless"}')
        await page.click("dialog button.primary")
        await page.wait_for_selector("text=Retried: the job is waiting.")
        await page.wait_for_selector("pre:has-text('harmless')")
        assert json.loads((await job_of(rig, made)).args) == {"text": "harmless"}
        assert wrong == []
