"""`headway top`: each key changes the store and the screen, and displayed data can harm neither."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

pytest.importorskip("textual", reason="the extra `top` is not installed: make setup")

from headway.cli.top.rendering import stuck
from headway.cli.top.snapshot import SnapshotReader, StoreQueries, View
from headway.client.address import read_address
from headway.client.calls import HttpCall, HttpCalls, HttpReply
from headway.client.remote_store import RemoteStore
from headway.contract.definitions import CloseGate, DeclareGate, DefineRequest, OpenGate, Role
from headway.contract.store import Store
from headway.contract.views import (
    GatesQuery,
    JobQuery,
    JobsQuery,
    LanesQuery,
    Query,
    TrailQuery,
)
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.runtime.latency import LaneLatency
from headway.testing.clock import FakeClock
from headway.testing.faulty import Fault, FaultyStore
from tests.cli.top_screen import (
    LINE,
    PLACES,
    Driven,
    StandingStill,
    claim,
    declare,
    die,
    driven,
    enqueue,
    place,
    reader_of,
)
from tests.docs.pages import ROOT
from tests.server.rig import serving

Answer = TypeVar("Answer")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=PLACES)
async def top(
    request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path
) -> AsyncIterator[Driven]:
    """A screen over each kind of store: in the lane calls 2 jobs run and 4 wait; in mail 3 wait."""
    async with place(request.param, clock, tmp_path) as (shown, store):
        await declare(store)
        await enqueue(
            store, 6, lane="calls", gates=(LINE,), args=b'{"phone":"+1","pin_token":70350917}'
        )
        await enqueue(store, 3, lane="mail", kind="Letter", tenant="acme")
        await claim(store, "calls", 2)
        clock.advance(23_000)
        async with driven(shown, store, clock=clock) as one:
            yield one


async def lane_is_paused(store: Store, name: str) -> bool:
    return (await store.read(LanesQuery(names=(name,))))[0].paused


async def test_p_pauses_and_resumes_the_selected_lane_with_the_reason_in_the_trail(top: Driven):
    await top.press("down", "p")
    assert "pause mail?" in top.text
    await top.press(*"lunch", "enter")
    assert await lane_is_paused(top.store, "mail")
    assert not await lane_is_paused(top.store, "calls")
    assert "lane:mail is closed until it is opened" in top.text
    assert "3 jobs wait at lane:mail: closed by " in top.text
    assert "(lunch)" in top.text
    (line, *_) = (await top.store.read(TrailQuery(target="lane:mail"))).rows
    assert line.reason == "lunch"
    await top.press("up", "p")
    assert "pause calls?" in top.text
    await top.press("escape", "down", "p")
    assert "resume mail?" in top.text
    await top.press("enter")
    assert not await lane_is_paused(top.store, "mail")
    assert "lane:mail is open again" in top.text


async def test_escape_at_a_prompt_changes_nothing(top: Driven):
    await top.press("p", "escape")
    assert not await lane_is_paused(top.store, "calls")
    assert "pause calls?" not in top.text


async def test_p_closes_and_opens_the_selected_gate(top: Driven):
    # The full gate is listed before the open ones.
    await top.press("2", "p", "enter")
    (gate,) = (await top.store.read(GatesQuery(names=("line",)))).rows
    assert gate.closed_until is not None
    assert "closed" in next(line for line in top.lines if line.startswith("line "))
    await top.press("p", "enter")
    (gate,) = (await top.store.read(GatesQuery(names=("line",)))).rows
    assert gate.closed_until is None


async def test_c_cancels_the_selected_job_and_r_retries_a_dead_one(top: Driven):
    await top.press("4")
    waiting = top.app._selected
    assert waiting is not None
    await top.press("c")
    assert waiting in top.text
    await top.press("enter")
    job = await top.store.read(JobQuery(id=waiting))
    assert job is not None
    assert job.state == "cancelled"
    assert f"cancel {waiting}: done, the job is cancelled" in " ".join(top.text.split())
    assert waiting[-12:] not in "".join(line for line in top.lines if line.startswith("ring"))

    (started,) = await claim(top.store, "mail", request=2)
    await die(top.store, started, "no route\n  at dial")
    await top.press("5")
    assert "no route" in top.text
    await top.press("r", "enter")
    job = await top.store.read(JobQuery(id=started.id))
    assert job is not None
    assert (job.state, job.life) == ("waiting", 2)
    assert "no route" not in top.text


async def test_action_refused_by_the_job_says_so_and_does_nothing(top: Driven):
    await top.press("3")
    running = top.app._selected
    assert running is not None
    await top.press("r", "enter")
    assert "refused, the job is running" in " ".join(top.text.split())


async def test_enter_shows_a_job_with_its_timeline_and_no_secret(top: Driven):
    await top.press("3", "enter")
    for part in ("timeline", "run 1", "line", '"phone":"+1"', "[hidden]"):
        assert part in top.text
    assert "70350917" not in top.text
    await top.press("escape")
    assert "3 running" in top.text


async def test_actions_on_the_job_page_apply_to_that_job(top: Driven):
    await top.press("4", "enter")
    job = top.app._selected
    assert job is not None
    await top.press("w")
    assert "wait" in top.lines[0] or "ready" in top.lines[0] or "blocked" in top.lines[0]
    await top.press("escape", "c", "enter")
    assert "state       cancelled" in top.text
    found = await top.store.read(JobQuery(id=job))
    assert found is not None
    assert found.state == "cancelled"


async def test_w_explains_a_lanes_oldest_job_and_a_gates_holders(top: Driven):
    await top.press("w")
    assert "line" in top.lines[0]
    assert "place in its flow" in top.text
    await top.press("escape", "2", "w")
    assert "held by" in top.text
    await top.press("escape", "1", "down", "w")
    assert "no live worker serves lane mail" in top.text
    await top.press("c")
    assert "cancel mail?" not in top.text


async def test_filter_shows_only_matching_rows_until_escape(top: Driven):
    await top.press("4", "slash", *"LETT", "enter")
    assert len([line for line in top.lines if line.startswith("Letter")]) == 3
    assert not [line for line in top.lines if line.startswith("ring")]
    assert top.app._selected is not None
    job = await top.store.read(JobQuery(id=top.app._selected))
    assert job is not None
    assert job.kind == "Letter"
    await top.press("escape")
    assert [line for line in top.lines if line.startswith("ring")]


async def test_enter_on_a_lane_shows_its_waiting_jobs(top: Driven):
    await top.press("down", "enter")
    assert "KIND" in top.text
    assert len([line for line in top.lines if line.startswith("Letter")]) == 3
    assert not [line for line in top.lines if line.startswith("ring")]


async def test_tab_cycles_the_views_and_foreign_keys_say_where_they_work(top: Driven):
    headings = ("GATE", "TRY", "PARKED AT", "ERROR", "LANE")
    for heading in headings:
        await top.press("tab")
        assert heading in top.text
    await top.press("c")
    assert "cancel acts on jobs" in top.text
    await top.press("3", "p")
    assert "p acts on lanes and gates" in top.text


async def test_help_lists_each_key_and_q_quits(top: Driven):
    await top.press("question_mark")
    for part in ("pause or resume the lane", "retry the dead job", "quit"):
        assert part in top.text
    await top.press("escape", "q")
    assert not top.app.is_running


async def test_actions_forbidden_to_a_viewers_token_show_the_servers_message():
    async with serving() as rig:
        await enqueue(rig.store, 1, lane="mail")
        remote = RemoteStore(read_address(rig.url, rig.tokens[Role.VIEWER]), patience_s=0.0)
        async with driven(remote, rig.store) as top:  # type: ignore[arg-type]
            refusal = (await rig.call(Role.VIEWER, "POST", "/v1/lanes/mail/pause")).json()["detail"]
            await top.press("p", "enter")
            assert refusal in " ".join(top.text.split())
            assert not await lane_is_paused(rig.store, "mail")
        await remote.close()


async def test_unreachable_store_is_reported_beside_the_last_data_until_it_returns(
    clock: FakeClock, tmp_path: Path
):
    async with place("memory", clock, tmp_path) as (store, _):
        faulty = FaultyStore(store)
        await enqueue(store, 1, lane="mail")
        async with driven(faulty) as top:
            faulty.plan(Fault.REFUSE, operation="read")
            await enqueue(store, 1, lane="fax")
            await top.reload()
            assert top.lines[1].startswith("away: ")
            assert "showing the last known data" in top.text
            assert "mail" in top.text
            assert "fax" not in top.text
            await top.reload()
            assert "away" not in top.text
            assert "fax" in top.text


HOSTILE = "[red]x[/red]\x1b[2J\u202eabc\x9b31m\u2028" + "long" * 250


async def test_no_user_text_moves_colours_or_widens_the_screen(clock: FakeClock, tmp_path: Path):
    async with place("memory", clock, tmp_path) as (store, _):
        name = HOSTILE[:200]
        await enqueue(store, 2, lane=name, kind=name, tenant=name, subject=name)
        (started,) = await claim(store, name)
        await die(store, started, HOSTILE)
        item = CloseGate(name=f"tenant:{name}", reason=HOSTILE)
        await store.define(DefineRequest(items=(item,), author=name, reason=HOSTILE))
        async with driven(store, clock=clock, name=HOSTILE) as top:
            for keys in (["1"], ["2"], ["enter"], ["escape", "4"], ["w"], ["escape", "enter"],
                         ["escape", "5"], ["enter"], ["escape", "c"]):  # fmt: skip
                await top.press(*keys)
                assert "[red]x" in top.text or keys[-1] == "c"
                if keys == ["1"]:
                    assert "LANE" in top.text
                    assert "\\x1b[2" in next(one for one in top.lines if one.startswith("[red]x"))
                for one in "\x1b\x9b\u202e\u2028":
                    assert one not in top.text
                assert {line.cell_length for line in top.strips} == {80}
                assert len(top.lines) == 24
                colours = {
                    segment.style.color.name
                    for strip in top.strips
                    for segment in strip
                    if "[red]x" in segment.text and segment.style and segment.style.color
                }
                assert "color(1)" not in colours


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 12)])
async def test_screen_fits_any_size_and_a_wide_one_shows_more(
    size: tuple[int, int], clock: FakeClock, tmp_path: Path
):
    async with place("memory", clock, tmp_path) as (store, _):
        await enqueue(store, 1, lane="mail")
        async with driven(store, size=(100, 30)) as top:
            await top.pilot.resize_terminal(*size)
            while top.app.query_one("RowsTable").size.width != size[0]:
                await top.pilot.pause()
            await top.rest()
            assert len(top.lines) == size[1]
            assert {line.cell_length for line in top.strips} == {size[0]}
            assert ("TARGET" in top.text) == (size[0] >= 110)
            assert "mail" in top.text


async def test_cursor_stays_at_its_row_while_others_appear(clock: FakeClock, tmp_path: Path):
    async with place("memory", clock, tmp_path) as (store, _):
        await enqueue(store, 1, lane="mail")
        await enqueue(store, 1, lane="post")
        async with driven(store, clock=clock) as top:
            await top.press("down")
            assert top.app._selected == "post"
            await enqueue(store, 1, lane="alpha")
            await top.reload()
            assert top.app._selected == "post"


async def test_rates_cover_the_last_ten_seconds_of_store_time(clock: FakeClock, tmp_path: Path):
    async with place("memory", clock, tmp_path) as (store, _):
        await enqueue(store, 5, lane="mail")
        reader = SnapshotReader(store)
        assert (await reader.read(View.LANES)).rates == {}
        clock.advance(2_000)
        (started, *_) = await claim(store, "mail", 4)
        await die(store, started, "x")
        snapshot = await reader.read(View.LANES)
        assert (snapshot.rates["started"], snapshot.finished["mail"]) == (2.0, 0.5)
        for _ in range(12):
            clock.advance(1_000)
            snapshot = await reader.read(View.LANES)
        assert (snapshot.rates["started"], snapshot.finished["mail"]) == (0.0, 0.0)


async def test_running_jobs_are_found_below_many_waiting_ones_in_few_pages(
    clock: FakeClock, tmp_path: Path
):
    async with place("memory", clock, tmp_path) as (store, _):
        (held,) = await enqueue(store, 1, lane="mail", priority=1)
        for _ in range(22):
            await enqueue(store, 1_000, lane="mail")
        await claim(store, "mail", 1)
        faulty = FaultyStore(store)
        reader = SnapshotReader(faulty)
        reads: list[int] = []
        for _ in range(3):
            before = len(faulty.calls)
            snapshot = await reader.read(View.RUNNING)
            reads.append(len(faulty.calls) - before)
        assert [job.id for job in snapshot.jobs] == [held]
        assert snapshot.held_back(View.RUNNING) == 0
        assert max(reads) <= 12


MOST_EXAMINED = (
    "headway.stores.ledger.paging.MOST_EXAMINED",
    "headway.stores.memory.jobs.MOST_EXAMINED",
)


@pytest.mark.parametrize("kind", PLACES)
async def test_running_waiting_and_parked_jobs_are_found_among_many_others(
    kind: str, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in MOST_EXAMINED:
        monkeypatch.setattr(name, 2)
    async with place(kind, clock, tmp_path) as (shown, store):
        await declare(store)
        phone = DeclareGate(spec=Slots("phone:{phone}", 1))
        await store.define(DefineRequest(items=(phone,), author="code"))
        later = clock.at + 10**12
        await enqueue(store, 30, lane="later", due_at=later)
        running = await enqueue(store, 2, lane="calls", gates=(LINE,))
        waiting = await enqueue(store, 3, lane="calls", gates=(LINE,))
        use = GateUse(name="phone:1", template="phone:{phone}", shared=False)
        running += await enqueue(store, 1, lane="dial", gates=(use,))
        waiting += await enqueue(store, 2, lane="dial", gates=(use,))
        await enqueue(store, 30, lane="later", due_at=later)
        await claim(store, "calls", 9)
        await claim(store, "dial", 9, worker="v" * 32)
        reader = reader_of(shown)
        assert {job.id for job in (await reader.read(View.RUNNING)).jobs} == {*running}
        snapshot = await reader.read(View.WAITING)
        assert {job.id for job in snapshot.jobs if job.state != "scheduled"} == {*waiting}
        assert snapshot.held_back(View.WAITING) == 65 - len(snapshot.jobs)
        async with driven(shown, store, clock=clock) as top:
            await top.press("down", "w")
            assert "phone:1 is full" in top.lines[0]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the paths requested from a server."""
    paths: list[str] = []
    ask = HttpCalls.ask

    async def noting(self: HttpCalls, call: HttpCall) -> HttpReply:
        paths.append(call.path)
        return await ask(self, call)

    monkeypatch.setattr(HttpCalls, "ask", noting)
    return paths


async def fill(store: Store, n: int) -> None:
    """Create n lanes with two waiting jobs each, n gates with parked jobs, and n workers."""
    phone = DeclareGate(spec=Slots("phone:{phone}", 2))
    await store.define(DefineRequest(items=(phone,), author="code"))
    for number in range(n):
        use = GateUse(name=f"phone:{number}", template="phone:{phone}", shared=False)
        await enqueue(store, 4, lane="dial", gates=(use,))
        assert len(await claim(store, "dial", 4, worker=f"{number:032}")) == 2
    for number in range(n):
        await enqueue(store, 2, lane=f"lane{number}")


async def test_refresh_over_a_server_needs_few_requests_whatever_the_store_contains(
    clock: FakeClock, tmp_path: Path, requests: list[str]
):
    for n in (1, 120):
        async with place("server", clock, tmp_path) as (shown, store):
            await fill(store, n)
            assert len(await shown.read(LanesQuery())) == n + 1
            reader = reader_of(shown, timing=StandingStill())
            for view in View:
                requests.clear()
                snapshot = await reader.read(view)
                assert (len(snapshot.overview.lanes), len(snapshot.overview.workers)) == (n + 1, n)
                assert (len(snapshot.overview.gates), snapshot.overview.more_gates) == (
                    n + 1,
                    False,
                )
                found = view in {View.RUNNING, View.WAITING}
                assert requests == ["/v1/overview", "/v1/lanes", *["/v1/jobs"] * found], view
                assert len(snapshot.jobs) == min(100, n * 2 * found * (1 + (view is View.WAITING)))
            async with driven(shown, store, clock=clock) as top:
                requests.clear()
                await top.press("w")
                assert (len(requests), requests[0], requests[1][-4:]) == (2, "/v1/jobs", "/why")


async def test_dead_job_below_many_others_is_found_after_some_refreshes_and_stays(
    clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in MOST_EXAMINED:
        monkeypatch.setattr(name, 2)
    async with place("memory", clock, tmp_path) as (store, _):
        (dead,) = await enqueue(store, 1, lane="mail")
        (started,) = await claim(store, "mail")
        await die(store, started, "no route")
        await enqueue(store, 30, lane="later")
        reader = SnapshotReader(store)
        found = [[job.id for job in (await reader.read(View.DEAD)).jobs] for _ in range(9)]
        assert found[0] == []
        assert found[-3:] == [[dead]] * 3
        (newer,) = await enqueue(store, 1, lane="mail")
        (started,) = await claim(store, "mail", request=2)
        await die(store, started, "busy")
        for _ in range(2):
            assert {job.id for job in (await reader.read(View.DEAD)).jobs} == {dead, newer}


class SetClock(StandingStill):
    """A clock that the test sets."""

    at = 0.0

    def monotonic(self) -> float:
        return self.at


async def test_latency_is_read_one_lane_at_a_time_starting_with_targets(
    clock: FakeClock, tmp_path: Path
):
    async with place("memory", clock, tmp_path) as (store, _):
        await declare(store)
        for lane in ("alpha", "beta"):
            await enqueue(store, 1, lane=lane)
        asked: list[str] = []
        takes = 0.0
        timing = SetClock()

        class Timed(StoreQueries):
            async def latencies(self, lanes: Sequence[str]) -> list[LaneLatency]:
                asked.extend(lanes)
                timing.at += takes
                return []

        reader = SnapshotReader(store, Timed(store), timing=timing)
        for _ in range(4):
            await reader.read(View.LANES)
        assert asked == ["calls", "alpha", "beta", "calls"]
        takes = 0.5
        await reader.read(View.LANES)
        for passed in (0.0, 199.0):
            timing.at += passed
            await reader.read(View.LANES)
        assert asked[4:] == ["alpha"]
        timing.at += 1.0
        await reader.read(View.LANES)
        assert asked[4:] == ["alpha", "beta"]


async def test_slow_listing_is_read_less_often_unless_a_key_requests_it(
    clock: FakeClock, tmp_path: Path
):
    async with place("memory", clock, tmp_path) as (store, _):
        await enqueue(store, 1, lane="mail")
        timing = SetClock()

        class Slow(FaultyStore):
            async def read(self, query: Query[Answer]) -> Answer:
                timing.at += 1.0 if isinstance(query, JobsQuery) and query.lane is None else 0.0
                return await super().read(query)

        reader = SnapshotReader(Slow(store), timing=timing)
        for passed, fresh, seen in ((0, False, 1), (69, False, 1), (0, True, 3), (71, False, 4)):
            timing.at += passed
            snapshot = await reader.read(View.WAITING, fresh=fresh)
            assert len(snapshot.jobs) == seen
            await enqueue(store, 1, lane="mail")
        assert (await reader.read(View.DEAD, fresh=False)).jobs == ()


async def test_closed_shared_gate_counts_as_stuck_even_without_a_worker(
    clock: FakeClock, tmp_path: Path
):
    async with place("memory", clock, tmp_path) as (store, _):
        await declare(store)
        use = GateUse(name="line", template="line", shared=True)
        await enqueue(store, 2, lane="calls", gates=(use,))
        item = CloseGate(name="line", reason="storm")
        await store.define(DefineRequest(items=(item,), author="bob"))
        snapshot = await SnapshotReader(store).read(View.LANES)
        assert stuck(snapshot) == [
            "2 jobs wait in the lane calls: no live worker serves it",
            "up to 2 jobs wait at line: closed by bob (storm)",
        ]


async def test_stuck_items_come_first_with_the_number_of_jobs_and_the_cause(
    clock: FakeClock, tmp_path: Path
):
    async with place("memory", clock, tmp_path) as (store, _):
        await declare(store)
        use = GateUse(name="line", template="line", shared=True)
        await enqueue(store, 4, lane="calls", gates=(use,))
        await claim(store, "calls", 2)
        await enqueue(store, 3, lane="mail")
        clock.advance(20_000)
        item = CloseGate(name="all", until_at=clock.at + 60_000, reason="storm")
        await store.define(DefineRequest(items=(item,), author="bob"))
        async with driven(store, clock=clock) as top:
            assert [line.rstrip() for line in top.lines[3:7]] == [
                "! 5 jobs wait at all: closed by bob (storm), opens in 1m",
                "! 3 jobs wait in the lane mail: no live worker serves it",
                " 1 lanes  2 gates  3 running  4 waiting  5 dead",
                "LANE                WAIT   RUN   OLDEST  DONE/S P50     P95     WORKERS",
            ]
            await store.define(DefineRequest(items=(OpenGate(name="all"),), author="bob"))
            await top.reload()
            assert [line.rstrip() for line in top.lines[3:5]] == [
                "! 3 jobs wait in the lane mail: no live worker serves it",
                "! up to 2 jobs wait at line: full, 2 of 2, held for 20s",
            ]


GUIDE = ROOT / "docs" / "how-to" / "top.md"


async def test_picture_in_the_guide_is_what_the_program_draws(clock: FakeClock, tmp_path: Path):
    async with place("memory", clock, tmp_path) as (store, _):
        await declare(store)
        await enqueue(store, 412, lane="calls", gates=(LINE,))
        await enqueue(store, 30, lane="mail", kind="letter")
        await enqueue(store, 3, lane="fax")
        await claim(store, "calls", 2, worker="c" * 32)
        letters = await claim(store, "mail", 14)
        item = CloseGate(name="lane:mail", until_at=clock.at + 1_240_000, reason="provider is down")
        await store.define(DefineRequest(items=(item,), author="ann"))
        clock.advance(30_000)
        async with driven(store, clock=clock, name="sqlite:///headway.db") as top:
            await enqueue(store, 20, lane="calls", gates=(LINE,))
            for started in letters[2:]:
                await die(store, started, "no route")
            clock.advance(10_000)
            await top.reload()
            drawn = top.text
    picture = re.search(r"```text\n(.*?)\n```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert picture is not None
    assert picture[1] == drawn
