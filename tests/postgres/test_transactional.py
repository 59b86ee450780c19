"""A job that is sent within a caller's transaction exists if and only if that commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

import headway as hw
from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.outcomes import SettleRequest, Succeeded, Verdict
from headway.contract.views import AuditQuery, LanesQuery, StatsQuery
from headway.core.errors import (
    IdConflict,
    InvalidValue,
    KeyConflict,
    StoreUnavailable,
    UnknownGate,
)
from headway.core.gates.spec import GateUse
from headway.core.job import NewJob, derived_id
from headway.stores.postgres import listening
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.store import PostgresStore
from tests.postgres.callers import LikeDjango
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database

LIMIT = 120
LANE = "calls"


@pytest.fixture(scope="module")
def database(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    with fresh_database(fast_postgres_server.url) as made:
        with psycopg.connect(made) as db:
            db.execute("CREATE TABLE lead (phone text PRIMARY KEY)")
        yield made


@pytest.fixture
async def app(database: str) -> AsyncIterator[hw.App]:
    with psycopg.connect(database) as db:
        db.execute("DROP SCHEMA IF EXISTS headway CASCADE")
        db.execute("TRUNCATE lead")
    numbers = hw.Slots("line", 2)
    app = hw.App(database)

    @app.job(lane=LANE, gates=[numbers])
    def call(phone: str) -> None: ...

    @app.job(lane="notes")
    def note(body: str) -> None: ...

    yield app
    await app.close_async()


@pytest.fixture
async def store(database: str, app: hw.App) -> AsyncIterator[PostgresStore]:
    """A store of another process."""
    await app.declare()
    opened = PostgresStore(parse_url(f"{database}?patience_ms=3000"))
    yield opened
    await opened.close()


async def claim(store: PostgresStore, request: int, worker: str = "w", n: int = 10) -> ClaimReply:
    wanted = ClaimRequest(
        worker=worker, request=request, lanes=((LANE, 1), ("notes", 1)), n=n, free=n
    )
    return await store.claim(wanted)


async def succeed(store: PostgresStore, reply: ClaimReply) -> list[Verdict]:
    outcomes = tuple(Succeeded(job.id, job.run) for job in reply.jobs)
    return await store.settle(SettleRequest(worker="w", outcomes=outcomes))


async def held(store: PostgresStore) -> int:
    counts = (await store.read(StatsQuery())).counts
    return sum(counts.values())


@pytest.mark.parametrize("keep", [True, False])
async def test_plain_connection(app: hw.App, store: PostgresStore, database: str, keep: bool):
    with psycopg.connect(database) as db:
        db.execute("INSERT INTO lead VALUES ('+1')")
        sent = app.send("call", phone="+1", connection=db)
        assert sent.created
        assert (await held(store), len((await claim(store, 1)).jobs)) == (0, 0)
        db.commit() if keep else db.rollback()
        leads = db.execute("SELECT count(*) FROM lead").fetchone()
    assert leads == (int(keep),)
    assert [job.id for job in (await claim(store, 2)).jobs] == ([sent.id] if keep else [])
    assert (await store.read(AuditQuery())).differences == ()
    assert await held(store) == keep
    lanes = await store.read(LanesQuery())
    assert [lane.name for lane in lanes] == ([LANE] if keep else [])


@pytest.mark.parametrize("keep", [True, False])
async def test_async_connection(app: hw.App, store: PostgresStore, database: str, keep: bool):
    async with await psycopg.AsyncConnection.connect(database) as db:
        sent = await app.send_async("call", phone="+1", connection=db)
        many = await app.send_many_async(
            [app.kind("note").make(body=str(n)) for n in range(1_500)], connection=db
        )
        assert await held(store) == 0
        await (db.commit() if keep else db.rollback())
    assert await held(store) == (1_501 if keep else 0)
    ids = {job.id for job in (await claim(store, 1, n=1000)).jobs}
    assert ids <= {sent.id, *(one.id for one in many)}
    assert bool(ids) is keep


async def test_many_jobs_in_steps_are_one_transaction(
    app: hw.App, store: PostgresStore, database: str
):
    jobs = [app.kind("note").make(body=str(n)) for n in range(2_500)]
    with psycopg.connect(database) as db:
        assert all(one.created for one in app.send_many(jobs, connection=db))
        db.rollback()
        assert await held(store) == 0
        sent = app.send_many(jobs, connection=db)
        db.commit()
    assert [one.id for one in sent] == [job.id for job in jobs]
    assert await held(store) == 2_500


async def test_sqlalchemy_session(app: hw.App, store: PostgresStore, database: str):
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        session.execute(text("INSERT INTO lead VALUES ('+1')"))
        app.send("call", phone="+1", connection=session)
        session.rollback()
        session.execute(text("INSERT INTO lead VALUES ('+2')"))
        sent = app.send("call", phone="+2", connection=session)
        session.commit()
        leads = session.execute(text("SELECT phone FROM lead")).scalars().all()
    engine.dispose()
    assert leads == ["+2"]
    assert [job.id for job in (await claim(store, 1)).jobs] == [sent.id]


async def test_django_connection(app: hw.App, store: PostgresStore, database: str):
    wrapper = LikeDjango(database)
    with wrapper:
        app.send("note", body="x", connection=wrapper)
        assert await held(store) == 0
    wrapper.close()
    assert await held(store) == 1


async def test_refused_job_leaves_the_transaction_usable(
    app: hw.App, store: PostgresStore, database: str
):
    with psycopg.connect(database) as db:
        db.execute("INSERT INTO lead VALUES ('+1')")
        app.send("note", body="a", key="k", connection=db)
        with pytest.raises(KeyConflict):
            app.send("note", body="b", key="k", connection=db)
        known = derived_id("transactional", 1)
        app.send("note", body="c", job_id=known, connection=db)
        with pytest.raises(IdConflict):
            app.send("note", body="d", job_id=known, connection=db)
        gate = GateUse(name="nowhere", template="nowhere", amount=1, shared=True)
        stranger = app.kind("note").make(body="e").changed(gates=(gate,))
        with pytest.raises(UnknownGate):
            app.send_many([stranger], connection=db)
        again = app.send("note", body="a", key="k", connection=db)
        assert not again.created
        db.commit()
        assert db.execute("SELECT count(*) FROM lead").fetchone() == (1,)
    assert await held(store) == 2


async def test_key_just_used_by_another_transaction_is_found(
    app: hw.App, store: PostgresStore, database: str
):
    with psycopg.connect(database) as db:
        first = app.send("note", body="a", key="k", connection=db)
        db.commit()
        again = app.send("note", body="a", key="k", connection=db)
        db.commit()
    assert (again.id, again.created) == (first.id, False)
    assert not (await app.send_async("note", body="a", key="k")).created


async def test_open_transaction_blocks_no_call(app: hw.App, store: PostgresStore, database: str):
    """The caller's transaction has sent to a gated lane and stays open; other work continues."""
    sent = [app.send("call", phone=f"+{n}") for n in range(6)]
    with psycopg.connect(database) as db, psycopg.connect(database, autocommit=True) as look:
        inside = app.send("call", phone="+99", connection=db)
        app.send("note", body="x", key="mine", connection=db)
        pid = db.info.backend_pid
        # The store's own steps are refused if they wait more than 3 s for anything.
        reply = await claim(store, 1)
        assert [job.id for job in reply.jobs] == [one.id for one in sent[:2]]
        settled = await succeed(store, reply)
        assert len(settled) == 2
        assert len((await claim(store, 2)).jobs) == 2
        assert (await app.send_async("call", phone="+7")).created
        assert (await app.send_async("note", body="y", key="theirs")).created
        await store.sweep(100)
        assert (await store.read(AuditQuery())).differences == ()
        blocked = look.execute(
            "SELECT pid FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))", (pid,)
        ).fetchall()
        assert blocked == []
        locks = look.execute(
            "SELECT DISTINCT mode FROM pg_locks WHERE pid = %s AND locktype IN"
            " ('relation', 'advisory', 'tuple')",
            (pid,),
        ).fetchall()
        assert {mode for (mode,) in locks} <= {"AccessShareLock", "RowExclusiveLock"}
        db.commit()
    await succeed(store, await claim(store, 2))
    started: list[str] = []
    for request in range(3, 8):
        reply = await claim(store, request)
        started += [job.id for job in reply.jobs]
        await succeed(store, reply)
    assert inside.id in started


@pytest.mark.parametrize("options", [{"key": "mine"}, {"job_id": derived_id("held", 1)}])
@pytest.mark.parametrize("awaited", [True, False])
async def test_key_of_an_open_transaction_delays_no_other_enqueue(
    app: hw.App, store: PostgresStore, database: str, options: dict[str, str], awaited: bool
):
    """A sender of the same key must wait for the outcome; senders of other keys must not wait."""
    with psycopg.connect(database) as db:
        first = app.send("note", body="x", **options, connection=db)
        if awaited:
            same = asyncio.ensure_future(app.send_async("note", body="x", **options))
        else:
            same = asyncio.ensure_future(asyncio.to_thread(app.send, "note", body="x", **options))
        await asyncio.to_thread(waited_for, database, db.info.backend_pid)
        sent = await asyncio.wait_for(app.send_async("note", body="y", key="theirs"), LIMIT)
        assert sent.created
        assert not same.done()
        assert [job.id for job in (await claim(store, 1)).jobs] == [sent.id]
        db.commit()
    again = await asyncio.wait_for(same, LIMIT)
    assert (again.id, again.created) == (first.id, False)


async def test_key_of_an_open_transaction_delays_not_even_a_processes_first_enqueue(
    store: PostgresStore, database: str
):
    """A process that has not used the store yet reads what later enqueues assume."""

    def made(number: int, key: str) -> NewJob:
        return NewJob(id=derived_id("first", number), kind="note", lane="notes", key=key)

    fresh = PostgresStore(parse_url(f"{database}?patience_ms=600000"))
    with psycopg.connect(database) as db:
        await store.enqueue_within_async(db, [made(1, "mine")])
        same = asyncio.ensure_future(fresh.enqueue([made(2, "mine")]))
        await asyncio.to_thread(waited_for, database, db.info.backend_pid)
        (sent,) = await asyncio.wait_for(fresh.enqueue([made(3, "theirs")]), LIMIT)
        assert sent.created
        assert not same.done()
        db.commit()
    (again,) = await asyncio.wait_for(same, LIMIT)
    assert (again.id, again.created) == (made(1, "mine").id, False)
    await fresh.close()


async def test_batch_is_reported_as_sent_before_the_server_has_stored_it(
    app: hw.App, database: str
):
    """So that its caller creates the next batch meanwhile."""
    await app.declare()
    patient = PostgresStore(parse_url(f"{database}?patience_ms=600000"))
    jobs = [NewJob(id=derived_id("sent", n), kind="note", lane="notes") for n in range(1_000)]
    sent, loop = asyncio.Event(), asyncio.get_running_loop()
    with psycopg.connect(database) as db:
        db.execute("LOCK TABLE headway.job IN SHARE MODE")
        batch = asyncio.ensure_future(
            patient.enqueue_ahead(jobs, lambda: loop.call_soon_threadsafe(sent.set))
        )
        await asyncio.wait_for(sent.wait(), LIMIT)
        assert not batch.done()
    assert len(await asyncio.wait_for(batch, LIMIT)) == 1_000
    await patient.close()


async def test_key_of_an_open_transaction_that_rolls_back_is_free(
    app: hw.App, store: PostgresStore, database: str
):
    with psycopg.connect(database) as db:
        app.send("note", body="x", key="mine", connection=db)
        same = asyncio.ensure_future(app.send_async("note", body="x", key="mine"))
        await asyncio.to_thread(waited_for, database, db.info.backend_pid)
        db.rollback()
    assert (await asyncio.wait_for(same, LIMIT)).created


async def test_enqueue_that_waits_for_a_key_wakes_waiters_even_if_its_caller_is_cancelled(
    app: hw.App, store: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
):
    """It cannot be stopped any more, so what it writes must be claimed like any other job."""
    monkeypatch.setattr(listening, "CHECK_EVERY", 3600.0)
    patient = PostgresStore(parse_url(f"{database}?patience_ms=600000"))
    await asyncio.wait_for(patient.wait(["notes"], None, (await claim(patient, 1)).seen), LIMIT)
    job = NewJob(id=derived_id("cancelled", 1), kind="note", lane="notes", key="mine")
    # In another lane, because the ends of these transactions wake waiters, too.
    first, other = (job.changed(id=derived_id("cancelled", n), lane="others") for n in (2, 3))
    with psycopg.connect(database) as db:
        await store.enqueue_within_async(db, [first])
        same = asyncio.ensure_future(patient.enqueue([job]))
        await asyncio.to_thread(waited_for, database, db.info.backend_pid)
        # Once another enqueue is through, this one waits on its own connection.
        await asyncio.wait_for(patient.enqueue([other.changed(key="theirs")]), LIMIT)
        await asyncio.to_thread(waited_for, database, db.info.backend_pid)
        same.cancel()
        with pytest.raises(asyncio.CancelledError):
            await same
        seen = (await claim(patient, 2)).seen
        db.rollback()
    assert await asyncio.wait_for(take_when_woken(patient, seen), LIMIT) == [job.id]
    await patient.close()


async def take_when_woken(store: PostgresStore, seen: int) -> list[str]:
    """Waits for a wake before each claim, until there are jobs."""
    request = 3
    while True:
        await store.wait(["notes"], None, seen)
        reply = await claim(store, request)
        if reply.jobs:
            return [one.id for one in reply.jobs]
        seen, request = reply.seen, request + 1


async def test_key_of_an_open_transaction_refuses_the_step_that_needs_it_and_holds_no_lock(
    app: hw.App, store: PostgresStore, database: str
):
    await app.send_async("note", body="first")
    (job,) = (await claim(store, 1)).jobs
    follow = app.kind("note").make(body="x", key="mine")
    request = SettleRequest(worker="w", outcomes=(Succeeded(job.id, job.run, then=(follow,)),))
    with psycopg.connect(database) as db:
        made = app.send("note", body="x", key="mine", connection=db)
        with pytest.raises(StoreUnavailable):
            await store.settle(request)
        assert (await app.send_async("note", body="y")).created
        assert len((await claim(store, 2)).jobs) == 1
        db.commit()
    await store.settle(request)
    assert [one.id for one in (await claim(store, 3)).jobs] == [made.id]


def waited_for(database: str, pid: int) -> None:
    """Block until another process waits for a backend of the server."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
    with psycopg.connect(database, autocommit=True) as look:
        for _ in range(10_000):
            row = look.execute(query, (pid,)).fetchone()
            if row and row[0]:
                return
    raise AssertionError("nobody waits")


async def test_serializable_caller_is_supported(app: hw.App, store: PostgresStore, database: str):
    with psycopg.connect(database) as db:
        db.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        db.execute("SELECT count(*) FROM lead")
        app.send("call", phone="+1", connection=db)
        db.commit()
    assert await held(store) == 1


async def test_connection_to_another_database_is_refused(
    app: hw.App, store: PostgresStore, fast_postgres_server: PostgresServer | GivenPostgres
):
    with fresh_database(fast_postgres_server.url) as elsewhere:
        other = PostgresStore(parse_url(elsewhere))
        await other.close()
        with psycopg.connect(elsewhere) as db:
            with pytest.raises(InvalidValue, match="different database"):
                app.send("note", body="x", connection=db)
            db.commit()
    assert (await app.send_async("note", body="x")).created
    assert await held(store) == 1


async def test_commit_of_a_session_wakes_waiters_elsewhere(
    app: hw.App, store: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(listening, "CHECK_EVERY", 3600.0)
    await asyncio.wait_for(store.wait([LANE], None, (await claim(store, 1)).seen), LIMIT)
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        app.send("call", phone="+1", connection=session)
        seen = (await claim(store, 2)).seen
        waiting = asyncio.ensure_future(store.wait([LANE], None, seen))
        session.commit()
        await asyncio.wait_for(waiting, LIMIT)
    engine.dispose()
    with psycopg.connect(database) as db:
        app.send("call", phone="+2", connection=db)
        seen = (await claim(store, 3)).seen
        waiting = asyncio.ensure_future(store.wait([LANE], None, seen))
        db.commit()
        app.wake(LANE)
        await asyncio.wait_for(waiting, LIMIT)


async def test_conflict_in_the_callers_snapshot_is_reported_at_once(app: hw.App, database: str):
    await app.declare()
    with psycopg.connect(database) as db, psycopg.connect(database, autocommit=True) as other:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        db.execute("SELECT count(*) FROM lead")
        app.send("call", phone="+1", key="one", connection=other)
        with pytest.raises(StoreUnavailable, match="the caller's transaction") as refused:
            app.send("call", phone="+1", key="one", connection=db)
        assert isinstance(refused.value.__cause__, psycopg.errors.SerializationFailure)
        assert "from its beginning" in refused.value.hint
        db.rollback()
        assert not app.send("call", phone="+1", key="one", connection=db).created
        db.commit()


async def test_store_that_shares_no_database_says_so(database: str):
    app = hw.App("memory://")

    @app.job()
    def note(body: str) -> None: ...

    with psycopg.connect(database) as db:
        with pytest.raises(InvalidValue, match="MemoryStore") as refused:
            app.send(note, body="x", connection=db)
        with pytest.raises(InvalidValue):
            await app.send_async(note, body="x", connection=db)
    assert "postgresql://" in refused.value.hint
    app.wake()
    await app.close_async()
