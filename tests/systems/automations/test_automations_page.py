"""The page of automations in the dashboard: what it shows and does, and for which roles."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from headway.app import App
from headway.contract.definitions import Role
from headway.contract.views import GatesQuery, JobsQuery, JobView
from headway.core.state import State
from headway.core.timetable.schedule import Cron, Every
from headway.runtime.timing import REAL
from headway.systems.automations import make
from headway.systems.automations.dispatcher import Dispatcher
from headway.systems.automations.folders import Folders
from headway.systems.automations.pages import (
    AHEAD_MS,
    TAIL,
    SessionView,
    printable,
    read_tail,
    session_view,
    strip,
)
from tests.server.rig import Rig
from tests.systems.automations.sessions_rig import LIMIT_S, new_repository
from tests.systems.automations.test_dispatching import entry, holding
from tests.web.rig import HOSTILE, dashboard, do, signed_in
from tests.web.test_web_pages import Tags, plain

PAGE = "/ui/automations"


@asynccontextmanager
async def operating(
    tmp_path: Path,
    *entries: str,
    head: str = "",
    work: bool = False,
    url: str = "memory://",
) -> AsyncIterator[tuple[Rig, httpx.AsyncClient]]:
    """Run a dashboard with the system, and an operator's browser; with `work`, sessions run."""
    file = tmp_path / "automations.toml"
    file.write_text("\n".join([head, *entries]))
    system = make({"file": str(file), "state_dir": str(tmp_path / "state"), "look_each": "50ms"})
    app = App(url)
    system.declare(app)
    try:
        async with (
            dashboard(app=app, systems=[system]) as rig,
            signed_in(rig, Role.OPERATOR) as http,
        ):
            worker = app.worker(lanes="automations", prefetch=0, grace="0s", heartbeat="task")
            working = asyncio.create_task(worker.run()) if work else None
            try:
                yield rig, http
            finally:
                worker.stop()
                if working is not None:
                    await working
    finally:
        await app.close_async()


async def shown(http: httpx.AsyncClient, words: str, path: str = PAGE) -> str:
    """Return the text of a page, once it contains these words."""
    async with asyncio.timeout(LIMIT_S):
        while words not in (text := plain((await http.get(path)).text)):
            await REAL.pause(0.05)
    return text


async def jobs(rig: Rig, *states: State) -> Any:
    return (await rig.store.read(JobsQuery(lane="automations", states=states))).rows


def daily(name: str, where: str = "/srv/repo", **more: Any) -> str:
    return entry(name, cast("Path", where), schedule="at 09:00", **more)


async def test_invalid_entry_comes_first_with_file_and_line_and_others_continue(tmp_path):
    wrong = daily("broken").replace("at 09:00", "soon")
    async with operating(tmp_path, daily("good"), wrong) as (_, http):
        page = (await http.get(PAGE)).text
        text = plain(page)
        line = (tmp_path / "automations.toml").read_text().splitlines().index(
            'schedule = "soon"'
        ) + 1
        assert f"automations.toml:{line}" in text
        assert text.index("1 fault in the file.") < text.index("Sessions")
        assert "at 09:00" in text
        one = plain((await http.get(f"{PAGE}?entry=broken")).text)
        assert "does not fire" in one
        assert f"automations.toml:{line}" in one


async def test_edit_of_the_file_changes_the_page_and_dispatch_applies_it_at_once(tmp_path):
    async with operating(tmp_path, daily("first")) as (_, http):
        assert "second" not in await shown(http, "first")
        file = tmp_path / "automations.toml"
        file.write_text("\n".join([daily("first"), daily("second")]))
        reply = await do(http, "/ui/-/do/automations-dispatch")
        assert reply.status_code == 303
        assert "second" in plain((await http.get(PAGE)).text)


async def test_run_now_makes_a_session_due_and_the_page_shows_it_waiting(tmp_path):
    async with operating(tmp_path, daily("report")) as (rig, http):
        assert "No session runs or waits." in plain((await http.get(PAGE)).text)
        reply = await do(http, "/ui/-/do/automations-run?automation=report")
        assert reply.status_code == 303
        (job,) = await jobs(rig, State.WAITING)
        assert json.loads(job.args)["automation"] == "report"
        page = (await http.get(PAGE)).text
        assert f"session={job.id}" in page
        assert "report waiting" in plain(page)
        one = plain((await http.get(PAGE, params={"session": job.id})).text)
        assert "It has not started." in one


async def test_limit_is_set_and_reset(tmp_path):
    async with operating(tmp_path, daily("a"), head="[dispatcher]\nmax_concurrent = 2") as (
        rig,
        http,
    ):
        await do(http, "/ui/-/do/automations-run?automation=a")
        assert "0 of 2 run" in plain((await http.get(PAGE)).text)
        await do(http, "/ui/-/do/automations-limit", max="7")
        (gate,) = (await rig.store.read(GatesQuery(names=("automations.sessions",)))).rows
        assert gate.capacity == 7
        text = plain((await http.get(PAGE)).text)
        assert "0 of 7 run" in text
        assert "the limit was set by an operator" in text
        assert 'name="max" value="7"' in (await http.get("/ui/-/do/automations-limit")).text
        assert (await do(http, "/ui/-/do/automations-limit", max="no")).status_code == 422
        await do(http, "/ui/-/do/automations-limit", max="")
        assert "0 of 2 run" in plain((await http.get(PAGE)).text)


async def test_load_that_lowers_the_limit_is_shown_beside_it(tmp_path):
    head = "[dispatcher]\nmax_concurrent = 2\ngovernor = { cpu = 80 }"
    async with operating(tmp_path, daily("a"), head=head) as (rig, http):
        dispatcher = cast("Dispatcher", rig.service.system_services["automations"])
        dispatcher.load = lambda: {"cpu": 93.0, "memory": 10.0}
        await shown(http, "the load lowers the limit: cpu 93 % of 80 %")
        await shown(http, "0 of 1 run")
        dispatcher.load = lambda: {"cpu": 20.0, "memory": 10.0}
        assert "the load lowers" not in await shown(http, "0 of 2 run")


@pytest.mark.slow
async def test_session_shows_its_live_output_and_its_lock_can_be_released(tmp_path):
    where = new_repository(tmp_path / "repository")
    command = "echo '<b>one</b>'; " + holding(tmp_path)
    entries = (entry("hold", where, command), entry("next", where, "echo two", schedule="at 09:00"))
    async with operating(tmp_path, *entries, work=True) as (rig, http):
        await shown(http, "hold running")
        (job,) = await jobs(rig, State.AWAITING)
        one = f"{PAGE}?session={job.id}"
        assert "<b>one</b>" in await shown(http, "<b>one</b>", one)
        assert "Output, as it comes" in plain((await http.get(one)).text)
        await do(http, "/ui/-/do/automations-run?automation=next")
        await shown(http, "next locked")
        reply = await do(http, f"/ui/-/do/automations-release?repository={where}", force="false")
        assert reply.status_code == 303
        await shown(http, "cancelled", one)
        assert "headway: ended: stopped" in plain((await http.get(one)).text)
        (after,) = [one for one in await jobs(rig) if b'"next"' in one.args and not one.entry]
        assert "two" in await shown(http, "succeeded", f"{PAGE}?session={after.id}")


async def test_neither_user_nor_token_of_a_repository_is_on_any_page(tmp_path):
    url = "https://ada:s3cret-t0ken@git.example.org:8443/Team/Repo.git"
    async with operating(tmp_path, daily("a", url)) as (rig, http):
        await do(http, "/ui/-/do/automations-run?automation=a")
        (job,) = await jobs(rig, State.WAITING)
        for path in (PAGE, f"{PAGE}?entry=a", f"{PAGE}?session={job.id}"):
            page = (await http.get(path)).text
            assert "git.example.org/team/repo" in page
            assert "s3cret" not in page
            assert "ada" not in plain(page).split()


async def test_viewer_sees_the_page_without_buttons_and_a_tenants_token_no_link(tmp_path):
    async with operating(tmp_path, daily("a")) as (rig, http):
        await do(http, "/ui/-/do/automations-run?automation=a")
        assert "data-ask" in (await http.get(PAGE)).text
        (job,) = await jobs(rig, State.WAITING)
        async with signed_in(rig, Role.VIEWER) as viewer:
            for path in (PAGE, f"{PAGE}?entry=a", f"{PAGE}?session={job.id}"):
                page = await viewer.get(path)
                assert page.status_code == 200
                assert "data-ask" not in page.text
            reply = await viewer.get("/ui/-/do/automations-run?automation=a")
            assert reply.status_code == 403
        tenant = await rig.token(Role.OPERATOR, tenants=["acme"])
        async with signed_in(rig, tenant) as other:
            assert PAGE not in (await other.get("/ui")).text
            assert (await other.get(PAGE)).status_code == 403
            assert (await other.get("/ui/-/do/automations-dispatch")).status_code == 403
            run = await other.get("/ui/-/do/automations-run?automation=a")
            assert run.status_code == 403
            token = (await other.get("/ui")).text.partition('name="form" value="')[2]
            form = {"form": token.partition('"')[0], "automation": "a"}
            run = await other.post("/ui/-/do/automations-run", data=form)
            assert run.status_code == 403
        assert await jobs(rig, State.WAITING) == (job,)


async def test_token_of_other_lanes_sees_starts_and_ends_no_session(tmp_path: Path):
    async with operating(tmp_path, daily("a")) as (rig, http):
        await do(http, "/ui/-/do/automations-run?automation=a")
        (job,) = await jobs(rig, State.WAITING)
        other = await rig.token(Role.ADMIN, lanes=["other"])
        for method, path, body in (
            ("GET", "", None),
            ("GET", "/locks", None),
            ("GET", "/notices", None),
            ("GET", "/concurrency", None),
            ("GET", "/dispatcher/health", None),
            ("GET", "/dispatcher/metrics", None),
            ("POST", "/dispatch", None),
            ("POST", "/a/run", None),
            ("DELETE", "/locks/github.com/o/r", None),
            ("PUT", "/concurrency", {"max": 1}),
        ):
            reply = await rig.call(other, method, f"/api/automations{path}", body)
            assert reply.status_code == 403, path
        async with signed_in(rig, other) as browser:
            for path in ("", f"?session={job.id}", "?entry=a"):
                assert (await browser.get(f"{PAGE}{path}")).status_code == 403
            for action in ("dispatch", "run?automation=a"):
                asked = await browser.get(f"/ui/-/do/automations-{action}")
                assert asked.status_code == 403
        own = await rig.token(Role.VIEWER, lanes=["auto*"])
        assert (await rig.call(own, "GET", "/api/automations")).status_code == 200


async def test_hostile_texts_are_shown_as_text(tmp_path):
    listed = [
        daily(f"e{i}", f"/srv/{one.replace(chr(39), '')}", window=one)
        for i, one in enumerate(HOSTILE)
    ]
    listed += [daily(f"r{i}", f"/srv/<img src=x>{i}", ref="<b>x</b>") for i in range(2)]
    async with operating(tmp_path, *listed) as (rig, http):
        for i, evil in enumerate(HOSTILE):
            body = {
                "kind": "automations.session",
                "lane": "automations",
                "args": {"automation": evil, "repository": evil},
            }
            await rig.call(Role.PRODUCER, "POST", "/v1/jobs", {**body, "key": f"k{i}"})
        rows = await jobs(rig, State.WAITING, State.PARKED, State.SCHEDULED)
        paths: list[dict[str, str]] = [{}, {"entry": "e0"}, {"entry": "r0"}]
        paths += [{"session": job.id} for job in rows]
        for query in paths:
            reply = await http.get(PAGE, params=query)
            assert reply.status_code == 200, reply.text
            seen = Tags(reply.text)
            assert seen.scripts == 1
            assert "img" not in seen.names
            assert not [one for one in seen.attributes if one.startswith("on")]
            for sign in ("\x1b", "\x07", "\N{RIGHT-TO-LEFT OVERRIDE}"):
                assert sign not in seen.text


def a_session(automation: str, job_id: str) -> SessionView:
    args = json.dumps({"automation": automation, "repository": "/srv/repo"}).encode()
    job = SimpleNamespace(
        id=job_id, args=args, runs=(), progress=b"[]", result=None, state=State.AWAITING
    )
    return session_view(cast("JobView", job))


def test_tail_of_a_log_is_bounded_and_starts_with_a_whole_line(tmp_path):
    folders = Folders(root=tmp_path)
    folders.make()
    one = a_session("a", "1")
    assert read_tail(folders, one) is None
    log = folders.log("cron:a:1")
    log.write_bytes(b"first\n\xff\n")
    assert read_tail(folders, one) == ("first\n\N{REPLACEMENT CHARACTER}\n", False)
    log.write_text("".join(f"line {n:06}\n" for n in range(10_000)))
    found = read_tail(folders, one)
    assert found is not None
    text, more = found
    assert more
    assert len(text) <= TAIL
    assert all(re.fullmatch("line [0-9]{6}", line) for line in text.splitlines())
    assert text.endswith("line 009999\n")


def test_no_file_beside_the_logs_is_read_whatever_a_job_says(tmp_path):
    folders = Folders(root=tmp_path)
    folders.make()
    (tmp_path / "logs" / "cron_x").mkdir()
    (tmp_path / "secret_1.log").write_text("secret")
    assert read_tail(folders, a_session("x/../../secret", "1")) is None
    (tmp_path / "logs" / "cron_l_1.log").symlink_to(tmp_path / "secret_1.log")
    assert read_tail(folders, a_session("l", "1")) is None
    assert read_tail(folders, a_session("n\0", "1")) is None


def test_colours_and_invisible_characters_are_removed_from_a_log():
    evil = "\x1b[31mred\x1b[0m\r\na\tb\x07\N{RIGHT-TO-LEFT OVERRIDE}\x1b]0;title\x07."
    sign = "\N{REPLACEMENT CHARACTER}"
    assert printable(evil) == f"red\na\tb{sign}{sign}."


def test_strip_has_a_tick_for_each_fire_and_is_a_bar_for_many():
    assert strip(Cron("0 */6 * * *"), 0, AHEAD_MS).count('class="tick"') == 4
    assert 'aria-label="4 fires"' in strip(Cron("0 */6 * * *"), 0, AHEAD_MS)
    often = strip(Every(60_000), 0, AHEAD_MS)
    assert 'class="often"' in often
    assert 'class="tick"' not in often
