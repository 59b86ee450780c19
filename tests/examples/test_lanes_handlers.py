"""The handlers of the lanes example, run on a real database, files and an SMTP server."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from aiosmtpd.smtp import SMTP, Envelope

import headway as hw
from examples.lanes.app import TYPES, declare_lanes
from examples.lanes.database import Database, now
from examples.lanes.mailer import Mailer
from examples.lanes.push import HttpGateway
from examples.lanes.world import World
from examples.lanes.writer import PlainWriter, find_writer
from headway.contract.views import JobsQuery, JobView, LanesQuery
from headway.stores.memory.store import MemoryStore
from tests.runtime.observed_store import ObservedStore, working

HOUR = timedelta(hours=1)
BEARER = "t0"
NOW = datetime.fromisoformat(now())


@dataclass
class Postbox:
    """A mailbox on a mail server: what it accepted, and its reply for each address."""

    taken: list[EmailMessage] = field(default_factory=list)
    says: dict[str, str] = field(default_factory=dict)
    port: int = 0

    async def handle_RCPT(  # noqa: N802  (the SMTP library's name)
        self, server: SMTP, session: object, envelope: Envelope, address: str, options: object
    ) -> str:
        if address in self.says:
            return self.says[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802  (the SMTP library's name)
        self, server: SMTP, session: object, envelope: Envelope
    ) -> str:
        raw = cast("bytes", envelope.content)
        self.taken.append(message_from_bytes(raw, policy=policy.default))
        return "250 OK"


@pytest.fixture
async def postbox() -> AsyncIterator[Postbox]:
    """A real SMTP server on a free port."""
    box = Postbox()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(box, loop=loop), "127.0.0.1", 0)
    box.port = server.sockets[0].getsockname()[1]
    yield box
    server.close()
    await server.wait_closed()


@dataclass
class Rig:
    """The example's program on a memory store, with a separate database and mail server."""

    world: World
    app: hw.App
    store: ObservedStore

    async def run(self, kind: str, /, **given: Any) -> JobView:
        """Send a job, and run it and the jobs that it creates until all are finished."""
        sent = await self.app.send_async(kind, **given)
        async with working(self.app):
            ended = await self.store.ends(sent.id)
            await self.store.until(self._idle)
        return ended

    async def _idle(self) -> bool:
        lanes = await self.store.inner.read(LanesQuery())
        return all(lane.unfinished == 0 for lane in lanes)

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self.world.database.read() as db:
            return [tuple(row) for row in db.execute(sql, values)]

    def fill(self, table: str, *rows: tuple[Any, ...]) -> None:
        with self.world.database.write() as db:
            for row in rows:
                marks = ", ".join("?" * len(row))
                db.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608  (names made by the test)


@pytest.fixture
async def rig(tmp_path: Path, postbox: Postbox) -> Rig:
    database = Database(str(tmp_path / "app.db"))
    world = World(
        database=database,
        mailer=Mailer(
            host="127.0.0.1",
            port=postbox.port,
            tls="no",
            user="",
            password="",
            sender="boards@example.org",
            database=database,
        ),
        gateway=HttpGateway(url="", token=""),
        writer=PlainWriter(),
        imports=tmp_path,
    )
    return rig_of(world)


def rig_of(world: World) -> Rig:
    store = ObservedStore(MemoryStore())
    app = hw.App(store=cast("Any", store))
    declare_lanes(app, world)
    return Rig(world=world, app=app, store=store)


def result(job: JobView) -> Any:
    assert job.state == "succeeded", job.reason
    return msgspec.json.decode(job.result or b"null")


def at(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


# ----------------------------------------------------------------------------------- the program


async def test_every_type_of_the_list_has_a_handler_and_the_five_lanes_have_their_targets(
    rig: Rig,
) -> None:
    assert set(rig.app.kinds) == {module.__name__.rpartition(".")[2] for module in TYPES} | {"noop"}
    await rig.app.declare()
    lanes = {one.name: one.spec for one in await rig.store.read(LanesQuery())}
    assert {name: (one.target_ms, one.concurrency) for name, one in lanes.items()} == {
        "send_email": (5_000, 3),
        "send_outreach": (300_000, 4),
        "import_prospects": (1_800_000, 2),
        "enrich": (300_000, 2),
        "notify": (5_000, 1),
    }


async def test_noop_does_nothing(rig: Rig) -> None:
    assert result(await rig.run("noop", whatever=1)) is None


# ------------------------------------------------------------------------------------------ mail


async def test_send_email_passes_one_message_to_the_server(rig: Rig, postbox: Postbox) -> None:
    job = await rig.run("send_email", to="ada@example.org", title="Grüße", text="Hello\n")
    (message,) = postbox.taken
    assert (message["To"], message["Subject"]) == ("ada@example.org", "Grüße")
    assert message.get_content().replace("\r\n", "\n") == "Hello\n"
    assert message["Message-ID"] == result(job) == f"<{job.id}@example.org>"


async def test_sent_message_is_not_sent_by_another_run(rig: Rig, postbox: Postbox) -> None:
    first = await rig.run("send_email", to="ada@example.org", title="T", text="x")
    again = rig_of(rig.world)  # a store without any record of the first run
    sent = await again.run("send_email", to="ada@example.org", title="T", text="x", job_id=first.id)
    assert result(sent) == result(first)
    assert len(postbox.taken) == 1


@pytest.mark.parametrize(
    ("said", "state", "reason"),
    [
        ("550 no such user", "dead", "550 no such user"),
        ("451 come back later", "scheduled", "451 come back later"),
    ],
)
async def test_mail_refused_permanently_is_dead_and_temporarily_is_retried(
    rig: Rig, postbox: Postbox, said: str, state: str, reason: str
) -> None:
    postbox.says["ada@example.org"] = said
    sent = await rig.app.send_async("send_email", to="ada@example.org", title="T", text="x")
    async with working(rig.app):
        job = await rig.store.becomes(sent.id, state)
    assert reason in job.reason
    assert postbox.taken == []


async def test_unreachable_mail_server_is_retried(rig: Rig) -> None:
    away = replace(rig.world, mailer=replace(rig.world.mailer, port=1))
    rig = rig_of(away)
    sent = await rig.app.send_async("send_email", to="ada@example.org", title="T", text="x")
    async with working(rig.app):
        job = await rig.store.becomes(sent.id, "scheduled")
    assert "cannot be reached" in job.reason


@pytest.mark.parametrize(
    "title", ["x\nBcc: b@example.org", "=?utf-8?q?x=0D=0ABcc:_b@example.org?="]
)
async def test_title_cannot_inject_a_header(rig: Rig, postbox: Postbox, title: str) -> None:
    job = await rig.run("send_email", to="a@example.org", title=title, text="")
    assert job.state == "dead"
    assert "cannot be written" in job.reason
    assert postbox.taken == []


async def test_send_outreach_fills_in_the_prospect_and_respects_an_opt_out(
    rig: Rig, postbox: Postbox
) -> None:
    rig.fill(
        "prospect",
        (1, "ada@example.org", "Ada", "Engines Ltd", "", None, None),
        (2, "bob@example.org", "", "", "", None, None),
    )
    rig.fill("opted_out", ("bob@example.org",))
    text = {"title": "Hello {name}", "text": "How is {company}?"}
    result(await rig.run("send_outreach", prospect=1, **text))
    assert result(await rig.run("send_outreach", prospect=2, **text)) == "opted out"
    assert (await rig.run("send_outreach", prospect=3, **text)).state == "dead"
    (message,) = postbox.taken
    assert message["Subject"] == "Hello Ada"
    assert "How is Engines Ltd?" in message.get_content()
    assert "unsubscribe" in message["List-Unsubscribe"]


async def test_send_digest_sends_new_items_to_each_member(rig: Rig, postbox: Postbox) -> None:
    fill_board(rig)
    assert result(await rig.run("send_digest", board=1, since="2026-01-02")) == 3
    assert sorted(message["To"] for message in postbox.taken) == [
        "ada@example.org",
        "bob@example.org",
        "cleo@example.org",
    ]
    text = postbox.taken[0].get_content()
    assert "Bob: Buy more tea." in text
    assert "Ada" not in text.partition("\n")[2]
    assert result(await rig.run("send_digest", board=1, since="2030-01-01")) == 0
    assert (await rig.run("send_digest", board=9, since="2026-01-02")).state == "dead"
    assert len(postbox.taken) == 3


async def test_send_invoice_adds_up_and_attaches(rig: Rig, postbox: Postbox) -> None:
    rig.fill("invoice", ("2026-7", "ada@example.org", "EUR"))
    rig.fill("invoice_line", ("2026-7", 1, "Tea", "0.10"), ("2026-7", 2, "Biscuits", "0.20"))
    assert result(await rig.run("send_invoice", number="2026-7"))["total"] == "0.30"
    (message,) = postbox.taken
    (attached,) = message.iter_attachments()
    assert attached.get_filename() == "invoice-2026-7.txt"
    assert attached.get_content().split()[-3:] == ["Total", "EUR", "0.30"]
    assert (await rig.run("send_invoice", number="none")).state == "dead"


# ----------------------------------------------------------------------------------------- push


@asynccontextmanager
async def gateway(*replies: str) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve these replies in turn over HTTP, and record the requests."""
    left, requests = list(replies), list[str]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.partition(":")[2])
            for line in head.splitlines()
            if line.lower().startswith("content-length")
        )
        requests.append(head + (await reader.readexactly(length)).decode())
        writer.write(f"HTTP/1.1 {left.pop(0)}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}/push", requests
    finally:
        server.close()
        await server.wait_closed()


async def test_notify_push_identifies_itself_to_the_gateway_by_job_id(rig: Rig) -> None:
    async with gateway("202 Accepted") as (url, requests):
        there = rig_of(replace(rig.world, gateway=HttpGateway(url=url, token=BEARER)))
        job = await there.run("notify_push", device="d1", title="Hi")
    assert result(job) == "202"
    head, _, body = requests[0].partition("\r\n\r\n")
    assert f"idempotency-key: {job.id}" in head.lower()
    assert "authorization: bearer t0" in head.lower()
    assert msgspec.json.decode(body) == {"device": "d1", "title": "Hi", "text": ""}


@pytest.mark.parametrize(
    ("said", "state", "reason"),
    [
        ("410 Gone", "dead", "the device is gone"),
        ("400 Bad Request", "dead", "said 400"),
        ("503 Away", "scheduled", "said 503"),
        ("429 Slow\r\nRetry-After: 3000", "scheduled", "said 429"),
    ],
)
async def test_push_refused_permanently_is_dead_and_temporarily_is_retried(
    rig: Rig, said: str, state: str, reason: str
) -> None:
    async with gateway(said) as (url, _):
        there = rig_of(replace(rig.world, gateway=HttpGateway(url=url, token="")))
        sent = await there.app.send_async("notify_push", device="d1", title="Hi")
        async with working(there.app):
            job = await there.store.becomes(sent.id, state)
    assert reason in job.reason
    if "Retry-After" in said:
        assert job.due_at - job.runs[0].ended_at == 3_000_000


async def test_push_without_a_gateway_is_dead_and_says_what_to_set(rig: Rig) -> None:
    job = await rig.run("notify_push", device="d1", title="Hi")
    assert (job.state, "PUSH_URL" in job.reason) == ("dead", True)


# ------------------------------------------------------------------------------------- prospects


async def test_import_prospects_stores_the_rows_of_a_file(rig: Rig) -> None:
    lines = ["email,name,company,phone", "no address,X,,", ",,,"]
    lines += [f"p{n}@example.org,P {n},,0{n}" for n in range(1_200)]
    file(rig, "\n".join(lines))
    job = await rig.run("import_prospects", file="p.csv")
    assert result(job) == {"rows": 1_202, "stored": 1_200, "refused": 2}
    assert rig.rows("SELECT count(DISTINCT email), count(*) FROM prospect") == [(1_200, 1_200)]
    assert rig.rows("SELECT name, phone FROM prospect WHERE email = 'p7@example.org'") == [
        ("P 7", "07")
    ]


async def test_interrupted_import_continues_where_it_stopped(rig: Rig) -> None:
    file(rig, "email\n" + "".join(f"p{n}@example.org\n" for n in range(1_200)))
    sent = await rig.app.send_async("import_prospects", file="p.csv")
    # The state left by a worker that was killed after the first step.
    rig.fill("import", (sent.id, 500, 500, 0))
    async with working(rig.app):
        job = await rig.store.ends(sent.id)
    assert result(job) == {"rows": 1_200, "stored": 1_200, "refused": 0}
    assert rig.rows("SELECT count(*), min(email) FROM prospect") == [(700, "p1000@example.org")]


@pytest.mark.parametrize("name", ["../secret.csv", "/etc/passwd", "none.csv", "."])
async def test_nothing_outside_the_folder_is_imported(rig: Rig, name: str) -> None:
    (rig.world.imports.parent / "secret.csv").write_text("email\na@example.org\n")
    job = await rig.run("import_prospects", file=name)
    assert (job.state, "no file" in job.reason) == ("dead", True)


async def test_file_without_addresses_is_dead(rig: Rig) -> None:
    file(rig, "name\nAda\n")
    job = await rig.run("import_prospects", file="p.csv")
    assert (job.state, job.reason) == ("dead", "p.csv has no column email")


async def test_dedup_prospects_keeps_the_first_and_merges_the_others(rig: Rig) -> None:
    rig.fill(
        "prospect",
        (1, "Ada@Example.org", "", "Engines", "", None, None),
        (2, "bob@example.org", "Bob", "", "", None, None),
        (3, " ada@example.org", "Ada", "Other", "1", None, None),
    )
    assert result(await rig.run("dedup_prospects")) == {"prospects": 2, "duplicates": 1}
    assert rig.rows("SELECT id, name, company, phone, duplicate_of FROM prospect") == [
        (1, "Ada", "Engines", "1", None),
        (2, "Bob", "", "", None),
        (3, "Ada", "Other", "1", 1),
    ]
    assert result(await rig.run("dedup_prospects")) == {"prospects": 2, "duplicates": 0}


async def test_enrich_prospect_infers_from_the_address_and_from_colleagues(rig: Rig) -> None:
    rig.fill(
        "prospect",
        (1, "grace.hopper@navy.mil", "", "", "+1 (202) 555-01", None, None),
        (2, "x@navy.mil", "X", "US Navy", "", None, None),
        (3, "jo@gmail.com", "", "", "", None, None),
        (4, "al@acme.example", "", "", "", None, None),
    )
    found = result(await rig.run("enrich_prospect", prospect=1))
    assert found == {"name": "Grace Hopper", "company": "US Navy", "phone": "+120255501"}
    assert result(await rig.run("enrich_prospect", prospect=3))["company"] == ""
    assert result(await rig.run("enrich_prospect", prospect=4))["company"] == "Acme"
    assert rig.rows("SELECT count(*) FROM prospect WHERE enriched_at IS NOT NULL") == [(3,)]
    assert (await rig.run("enrich_prospect", prospect=9)).state == "dead"


# ---------------------------------------------------------------------------------------- boards


async def test_rebuild_search_index_finds_words_of_boards_cards_and_public_posts(rig: Rig) -> None:
    fill_board(rig)
    rig.fill(
        "post", (1, 1, "tea for all", "published", "2026"), (2, 1, "secret tea", "draft", None)
    )
    for _ in range(2):
        assert result(await rig.run("rebuild_search_index")) == 5
    found = rig.rows("SELECT what, ref FROM search WHERE search MATCH 'tea' ORDER BY what, ref")
    assert [what for what, _ in found] == ["board", "card", "card", "post"]


async def test_ai_summarize_board_keeps_the_summary(rig: Rig) -> None:
    fill_board(rig)
    summary = result(await rig.run("ai_summarize_board", board=1, sentences=1))
    assert summary == "Tea is what people want, and more tea."
    assert rig.rows("SELECT summary FROM board WHERE id = 1") == [(summary,)]


class Parrot:
    """A writer for the test."""

    asked: list[tuple[str, str, int]] = []  # noqa: RUF012  (reset by each test that reads it)

    async def write(self, task: str, material: str, *, sentences: int) -> str:
        self.asked.append((task, material, sentences))
        return "What the model wrote."


async def test_another_writer_is_injected_by_name(rig: Rig) -> None:
    writer = find_writer(f"{__name__}:Parrot")
    rig = rig_of(replace(rig.world, writer=writer))
    fill_board(rig)
    assert result(await rig.run("ai_summarize_board", board=1)) == "What the model wrote."
    (task, material, _) = cast("Any", writer).asked[-1]
    assert "Tea board" in task
    assert "Buy more tea." in material


async def test_ai_suggest_post_drafts_and_publish_post_publishes_once(rig: Rig) -> None:
    fill_board(rig)
    post = result(await rig.run("ai_suggest_post", board=1))
    assert rig.rows("SELECT state, published_at FROM post WHERE id = ?", post) == [("draft", None)]
    when = result(await rig.run("publish_post", post=post, devices=["d1"]))
    assert rig.rows("SELECT state, published_at FROM post") == [("published", when)]
    assert result(await rig.run("publish_post", post=post)) == when
    assert (await rig.run("publish_post", post=99)).state == "dead"
    assert [one.kind for one in (await rig.store.read(JobsQuery(kind="notify_push"))).rows] == [
        "notify_push"
    ]


async def test_gpt_ai_cofac_nudging_writes_only_to_silent_members(
    rig: Rig, postbox: Postbox
) -> None:
    fill_board(rig)
    assert result(await rig.run("gpt_ai_cofac_nudging", board=1)) == 1
    (message,) = postbox.taken
    assert message["To"] == "cleo@example.org"
    assert "tea" in message.get_content()


async def test_open_board_is_archived_when_it_is_closed(rig: Rig) -> None:
    fill_board(rig)
    early = await rig.app.send_async("archive_board", board=1)
    async with working(rig.app):
        refused = await rig.store.becomes(early.id, "scheduled")
    assert "close it first" in refused.reason
    await rig.run("close_board", board=1)
    assert result(await rig.store.ends(early.id)) == 3


async def test_board_is_closed_and_then_archived_with_all_its_cards(rig: Rig) -> None:
    fill_board(rig)
    closed_at = result(await rig.run("close_board", board=1))
    assert result(await rig.run("close_board", board=1)) == closed_at
    assert result(await rig.run("archive_board", board=1)) == 3
    assert rig.rows("SELECT count(*) FROM card") == [(0,)]
    assert rig.rows("SELECT count(*) FROM archived_card") == [(3,)]
    assert (await rig.run("archive_board", board=1)).state == "dead"
    assert (await rig.run("ai_summarize_board", board=1)).state == "dead"


# ---------------------------------------------------------------------------------- housekeeping


async def test_purge_sessions_deletes_ended_sessions(rig: Rig) -> None:
    old, new = at(NOW - HOUR), at(NOW + HOUR)
    rig.fill("session", *((f"s{n}", "ada", old) for n in range(2_500)), ("live", "ada", new))
    assert result(await rig.run("purge_sessions")) == 2_500
    assert rig.rows("SELECT id FROM session") == [("live",)]


async def test_vacuum_logs_deletes_old_lines_and_frees_space(rig: Rig) -> None:
    old, new = at(NOW - timedelta(days=40)), at(NOW)
    rig.fill("log", *((n, old, "x" * 500) for n in range(2_000)), (9_999, new, "new"))
    found = result(await rig.run("vacuum_logs"))
    assert found["lines"] == 2_000
    assert found["bytes"] > 500_000
    assert rig.rows("SELECT id FROM log") == [(9_999,)]


async def test_metric_rollup_sums_up_past_hours(rig: Rig) -> None:
    rig.fill(
        "metric",
        ("2026-01-01T10:01:00+00:00", "load", 1.0),
        ("2026-01-01T10:59:00+00:00", "load", 3.0),
        ("2026-01-01T11:00:00+00:00", "load", 5.0),
        (at(NOW + HOUR), "load", 7.0),
    )
    assert result(await rig.run("metric_rollup")) == 3
    rig.fill("metric", ("2026-01-01T10:30:00+00:00", "load", 8.0))
    assert result(await rig.run("metric_rollup")) == 1
    assert rig.rows("SELECT * FROM metric_hour ORDER BY hour") == [
        ("2026-01-01T10", "load", 3, 12.0, 1.0, 8.0),
        ("2026-01-01T11", "load", 1, 5.0, 5.0, 5.0),
    ]
    assert rig.rows("SELECT value FROM metric") == [(7.0,)]


async def test_health_check_names_what_does_not_answer(rig: Rig) -> None:
    assert result(await rig.run("health_check")) == {"database": "ok", "mail": "ok"}
    away = rig_of(replace(rig.world, mailer=replace(rig.world.mailer, port=1)))
    job = await away.run("health_check")
    assert (job.state, job.reason.partition(":")[0]) == ("dead", "mail")


def test_work_done_for_a_job_is_not_repeated(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "app.db"))

    def add(db: sqlite3.Connection) -> int:
        db.execute("INSERT INTO opted_out VALUES ('ada@example.org')")
        return 7

    assert database.once("job 1", add) == 7
    assert database.once("job 1", add) == 7
    with pytest.raises(sqlite3.IntegrityError):
        database.once("job 2", add)
    with database.read() as db:
        assert db.execute("SELECT job FROM done").fetchall()[0]["job"] == "job 1"


# --------------------------------------------------------------------------------------- helpers


def file(rig: Rig, text: str) -> None:
    (rig.world.imports / "p.csv").write_text(text, encoding="utf-8")


def fill_board(rig: Rig) -> None:
    rig.fill("board", (1, "Tea board", "open", "", None, None))
    rig.fill(
        "card",
        (1, 1, "Ada", "Nobody reads this old thing.", "2026-01-01T00:00:00+00:00"),
        (2, 1, "Bob", "Buy more tea.", "2026-01-02T00:00:00+00:00"),
        (3, 1, "Bob", "Tea is what people want, and more tea.", "2026-01-03T00:00:00+00:00"),
    )
    rig.fill(
        "member",
        (1, "ada@example.org", "Ada"),
        (1, "bob@example.org", "Bob"),
        (1, "cleo@example.org", "Cleo"),
    )
