"""Enqueueing on callers' connections, with an insertion that replaces the store's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from headway.contract.store import Sent
from headway.core.errors import InvalidValue, KeyConflict, StoreUnavailable
from headway.core.job import NewJob
from headway.stores.postgres.caller_transactions import Woken
from headway.stores.postgres.connection import Connection
from headway.stores.postgres.options import PostgresOptions
from tests.postgres.caller_inserts import CallerInserts, job, there
from tests.postgres.callers import LikeDjango

# psycopg


@pytest.mark.parametrize("keep", [True, False])
def test_job_exists_if_and_only_if_the_caller_commits(
    inserts: CallerInserts, caller_url: str, keep: bool
):
    with psycopg.connect(caller_url) as db:
        assert inserts.enqueue(db, [job(1)]) == [Sent(job(1).id, created=True)]
        assert there(caller_url) == 0
        db.commit() if keep else db.rollback()
        assert there(caller_url) == keep
    assert inserts.woken == []


def test_callers_own_settings_stay_unchanged(inserts: CallerInserts, caller_url: str):
    notices: list[str | None] = []
    with psycopg.connect(caller_url, row_factory=dict_row, prepare_threshold=0) as db:
        db.add_notice_handler(lambda told: notices.append(told.message_primary))
        assert db.execute("SELECT %s AS n", (1,)).fetchone() == {"n": 1}
        for number in range(8):
            inserts.enqueue(db, [job(number)])
            assert db.execute("SELECT %s AS n", (number,)).fetchone() == {"n": number}
        db.execute("DO $$ BEGIN RAISE NOTICE 'hello'; END $$")
        db.commit()
        assert notices == ["hello"]
        assert not db.closed
        assert there(caller_url) == 8


def test_transaction_starts_as_the_caller_wants_it(inserts: CallerInserts, caller_url: str):
    with psycopg.connect(caller_url) as db:
        db.isolation_level = IsolationLevel.SERIALIZABLE
        db.deferrable = True
        inserts.enqueue(db, [job(1)])
        assert db.execute("SHOW transaction_isolation").fetchone() == ("serializable",)
        assert db.execute("SHOW transaction_deferrable").fetchone() == ("on",)
        db.rollback()
    assert there(caller_url) == 0


def test_block_of_an_autocommit_caller_is_one_transaction(inserts: CallerInserts, caller_url: str):
    with psycopg.connect(caller_url, autocommit=True) as db:
        with db.transaction():
            inserts.enqueue(db, [job(1)])
            raise psycopg.Rollback
        assert there(caller_url) == 0
        with db.transaction():
            inserts.enqueue(db, [job(1)])
        assert there(caller_url) == 1
        assert inserts.woken == []


def test_job_without_a_transaction_exists_and_is_announced_at_once(
    inserts: CallerInserts, caller_url: str
):
    with psycopg.connect(caller_url, autocommit=True) as db:
        inserts.enqueue(db, [job(1)])
        assert there(caller_url) == 1
    assert inserts.woken == [{("main", None): None}]


def test_refused_job_leaves_the_transaction_usable(inserts: CallerInserts, caller_url: str):
    with psycopg.connect(caller_url) as db:
        db.execute("INSERT INTO sent VALUES ('mine')")
        inserts.enqueue(db, [job(1)])
        with pytest.raises(KeyConflict):
            inserts.enqueue(db, [job(2), job(1)])
        inserts.enqueue(db, [job(3)])
        db.commit()
    assert there(caller_url) == 3


def test_failed_transaction_is_refused_clearly(inserts: CallerInserts, caller_url: str):
    with psycopg.connect(caller_url) as db:
        with pytest.raises(psycopg.errors.DivisionByZero):
            db.execute("SELECT 1 / 0")
        with pytest.raises(InvalidValue, match="failed already"):
            inserts.enqueue(db, [job(1)])
        db.rollback()


def test_closed_connection_is_refused_clearly(inserts: CallerInserts, caller_url: str):
    db = psycopg.connect(caller_url)
    db.close()
    with pytest.raises(InvalidValue, match="closed"):
        inserts.enqueue(db, [job(1)])


def test_connection_in_a_pipeline_is_refused_clearly(inserts: CallerInserts, caller_url: str):
    refused = pytest.raises(InvalidValue, match="pipeline")
    with psycopg.connect(caller_url) as db, db.pipeline(), refused:
        inserts.enqueue(db, [job(1)])
    assert there(caller_url) == 0


def test_connection_that_breaks_is_unavailable_and_nothing_was_written(
    inserts: CallerInserts, caller_url: str
):
    with psycopg.connect(caller_url) as db, psycopg.connect(caller_url, autocommit=True) as other:
        inserts.enqueue(db, [job(1)])
        other.execute("SELECT pg_terminate_backend(%s)", (db.info.backend_pid,))
        with pytest.raises(StoreUnavailable):
            inserts.enqueue(db, [job(2)])
    assert there(caller_url) == 0


@pytest.mark.parametrize("given", [object(), "postgresql://", 7, create_engine])
def test_invalid_connection_is_refused_clearly(inserts: CallerInserts, given: object):
    with pytest.raises(InvalidValue, match="is not a connection") as refused:
        inserts.enqueue(given, [job(1)])
    assert "SQLAlchemy" in refused.value.hint


# psycopg, async


@pytest.mark.parametrize("keep", [True, False])
async def test_async_connection_keeps_the_same_promise(
    inserts: CallerInserts, caller_url: str, keep: bool
):
    async with await psycopg.AsyncConnection.connect(caller_url) as db:
        await db.execute("SELECT 1")
        await inserts.enqueue_async(db, [job(1), job(2)])
        assert there(caller_url) == 0
        await (db.commit() if keep else db.rollback())
        assert there(caller_url) == (2 if keep else 0)


async def test_async_connection_is_refused_in_synchronous_code(
    inserts: CallerInserts, caller_url: str
):
    async with await psycopg.AsyncConnection.connect(caller_url) as db:
        with pytest.raises(InvalidValue) as refused:
            inserts.enqueue(db, [job(1)])
        assert "send_async" in refused.value.hint


async def test_sync_connection_can_be_used_from_async_code(inserts: CallerInserts, caller_url: str):
    with psycopg.connect(caller_url) as db:
        await inserts.enqueue_async(db, [job(1)])
        db.commit()
    assert there(caller_url) == 1


async def test_cancelled_send_returns_the_connection_only_when_it_is_free(
    caller_options: PostgresOptions, caller_url: str
):
    entered, go_on = threading.Event(), threading.Event()

    class Slow(CallerInserts):
        def insert(
            self, connection: Connection, jobs: Sequence[NewJob]
        ) -> tuple[list[Sent], Woken]:
            entered.set()
            assert go_on.wait(30)
            return super().insert(connection, jobs)

    async with await psycopg.AsyncConnection.connect(caller_url) as db:
        task = asyncio.ensure_future(Slow(caller_options).enqueue_async(db, [job(1)]))
        assert await asyncio.to_thread(entered.wait, 30)
        task.cancel()
        await asyncio.wait([task], timeout=0.01)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        cursor = await db.execute("SELECT count(*) FROM sent")
        assert await cursor.fetchone() == (1,)
        await db.rollback()


# SQLAlchemy


@pytest.fixture
def sessions(caller_url: str) -> Iterator[sessionmaker[Session]]:
    made = create_engine(caller_url.replace("postgresql://", "postgresql+psycopg://"))
    yield sessionmaker(made)
    made.dispose()


def test_session_commits_the_job_with_its_own_rows_and_announces_it(
    inserts: CallerInserts, sessions: sessionmaker[Session], caller_url: str
):
    with sessions() as session:
        session.execute(text("INSERT INTO sent VALUES ('mine')"))
        inserts.enqueue(session, [job(1)])
        inserts.enqueue(session, [job(2)])
        assert (there(caller_url), inserts.woken) == (0, [])
        session.commit()
        assert there(caller_url) == 3
        assert inserts.woken == [{("main", None): None}] * 2
        session.execute(text("SELECT 1"))
        session.commit()
        assert len(inserts.woken) == 2


def test_session_that_rolls_back_leaves_and_announces_nothing(
    inserts: CallerInserts, sessions: sessionmaker[Session], caller_url: str
):
    with sessions() as session:
        inserts.enqueue(session, [job(1)])
        session.rollback()
        inserts.enqueue(session, [job(2)])
        session.commit()
    assert there(caller_url) == 1
    assert len(inserts.woken) == 1


def test_scoped_session_also_announces(
    inserts: CallerInserts, sessions: sessionmaker[Session], caller_url: str
):
    scoped = scoped_session(sessions)
    inserts.enqueue(scoped, [job(1)])
    scoped.commit()
    scoped.remove()
    assert (there(caller_url), len(inserts.woken)) == (1, 1)


def test_savepoint_of_a_session_includes_the_job(
    inserts: CallerInserts, sessions: sessionmaker[Session], caller_url: str
):
    with sessions.begin() as session:
        with session.begin_nested() as nested:
            inserts.enqueue(session, [job(1)])
            nested.rollback()
        inserts.enqueue(session, [job(2)])
    assert there(caller_url) == 1


@pytest.mark.parametrize("keep", [True, False])
def test_end_of_a_savepoint_announces_nothing_yet(
    inserts: CallerInserts, sessions: sessionmaker[Session], caller_url: str, keep: bool
):
    with sessions.begin() as session:
        inserts.enqueue(session, [job(1)])
        with session.begin_nested() as nested:
            session.execute(text("INSERT INTO sent VALUES ('mine')"))
            nested.commit() if keep else nested.rollback()
        assert inserts.woken == []
    assert there(caller_url) == 1 + keep
    assert len(inserts.woken) == 1


@pytest.mark.parametrize("keep", [True, False])
def test_sqlalchemy_connection_knows_that_a_transaction_has_started(
    inserts: CallerInserts, sessions: sessionmaker[Session], caller_url: str, keep: bool
):
    engine = sessions.kw["bind"]
    with engine.connect() as db:
        inserts.enqueue(db, [job(1)])
        if keep:
            db.commit()
    assert there(caller_url) == keep


# Django


def test_django_connection_is_opened_and_announces_its_commit(
    inserts: CallerInserts, caller_url: str
):
    wrapper = LikeDjango(caller_url)
    try:
        with wrapper:
            inserts.enqueue(wrapper, [job(1)])
            assert (there(caller_url), inserts.woken) == (0, [])
        assert (there(caller_url), len(inserts.woken)) == (1, 1)
        with suppress(ZeroDivisionError), wrapper:
            inserts.enqueue(wrapper, [job(2)])
            raise ZeroDivisionError
        assert (there(caller_url), len(inserts.woken)) == (1, 1)
        inserts.enqueue(wrapper, [job(3)])
        assert (there(caller_url), len(inserts.woken)) == (2, 2)
    finally:
        wrapper.close()
