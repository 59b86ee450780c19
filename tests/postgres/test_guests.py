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
from headway.stores.postgres.connection import Connection
from headway.stores.postgres.guests import Woken
from headway.stores.postgres.options import PostgresOptions
from tests.postgres.callers import LikeDjango
from tests.postgres.door import Door, job, there

# psycopg


@pytest.mark.parametrize("keep", [True, False])
def test_job_exists_if_and_only_if_the_caller_commits(door: Door, door_url: str, keep: bool):
    with psycopg.connect(door_url) as db:
        assert door.enqueue(db, [job(1)]) == [Sent(job(1).id, created=True)]
        assert there(door_url) == 0
        db.commit() if keep else db.rollback()
        assert there(door_url) == keep
    assert door.woken == []


def test_callers_own_settings_stay_unchanged(door: Door, door_url: str):
    notices: list[str | None] = []
    with psycopg.connect(door_url, row_factory=dict_row, prepare_threshold=0) as db:
        db.add_notice_handler(lambda told: notices.append(told.message_primary))
        assert db.execute("SELECT %s AS n", (1,)).fetchone() == {"n": 1}
        for number in range(8):
            door.enqueue(db, [job(number)])
            assert db.execute("SELECT %s AS n", (number,)).fetchone() == {"n": number}
        db.execute("DO $$ BEGIN RAISE NOTICE 'hello'; END $$")
        db.commit()
        assert notices == ["hello"]
        assert not db.closed
        assert there(door_url) == 8


def test_transaction_starts_as_the_caller_wants_it(door: Door, door_url: str):
    with psycopg.connect(door_url) as db:
        db.isolation_level = IsolationLevel.SERIALIZABLE
        db.deferrable = False
        door.enqueue(db, [job(1)])
        assert db.execute("SHOW transaction_isolation").fetchone() == ("serializable",)
        db.rollback()
    assert there(door_url) == 0


def test_block_of_an_autocommit_caller_is_one_transaction(door: Door, door_url: str):
    with psycopg.connect(door_url, autocommit=True) as db:
        with db.transaction():
            door.enqueue(db, [job(1)])
            raise psycopg.Rollback
        assert there(door_url) == 0
        with db.transaction():
            door.enqueue(db, [job(1)])
        assert there(door_url) == 1
        assert door.woken == []


def test_job_without_a_transaction_exists_and_is_announced_at_once(door: Door, door_url: str):
    with psycopg.connect(door_url, autocommit=True) as db:
        door.enqueue(db, [job(1)])
        assert there(door_url) == 1
    assert door.woken == [{("main", None): None}]


def test_refused_job_leaves_the_transaction_usable(door: Door, door_url: str):
    with psycopg.connect(door_url) as db:
        db.execute("INSERT INTO sent VALUES ('mine')")
        door.enqueue(db, [job(1)])
        with pytest.raises(KeyConflict):
            door.enqueue(db, [job(2), job(1)])
        door.enqueue(db, [job(3)])
        db.commit()
    assert there(door_url) == 3


def test_failed_transaction_is_refused_clearly(door: Door, door_url: str):
    with psycopg.connect(door_url) as db:
        with pytest.raises(psycopg.errors.DivisionByZero):
            db.execute("SELECT 1 / 0")
        with pytest.raises(InvalidValue, match="failed already"):
            door.enqueue(db, [job(1)])
        db.rollback()


def test_closed_connection_is_refused_clearly(door: Door, door_url: str):
    db = psycopg.connect(door_url)
    db.close()
    with pytest.raises(InvalidValue, match="closed"):
        door.enqueue(db, [job(1)])


def test_connection_in_a_pipeline_is_refused_clearly(door: Door, door_url: str):
    refused = pytest.raises(InvalidValue, match="pipeline")
    with psycopg.connect(door_url) as db, db.pipeline(), refused:
        door.enqueue(db, [job(1)])
    assert there(door_url) == 0


def test_connection_that_breaks_is_unavailable_and_nothing_was_written(door: Door, door_url: str):
    with psycopg.connect(door_url) as db, psycopg.connect(door_url, autocommit=True) as other:
        door.enqueue(db, [job(1)])
        other.execute("SELECT pg_terminate_backend(%s)", (db.info.backend_pid,))
        with pytest.raises(StoreUnavailable):
            door.enqueue(db, [job(2)])
    assert there(door_url) == 0


@pytest.mark.parametrize("given", [object(), "postgresql://", 7, create_engine])
def test_invalid_connection_is_refused_clearly(door: Door, given: object):
    with pytest.raises(InvalidValue, match="is not a connection") as refused:
        door.enqueue(given, [job(1)])
    assert "SQLAlchemy" in refused.value.hint


# psycopg, async


@pytest.mark.parametrize("keep", [True, False])
async def test_async_connection_keeps_the_same_promise(door: Door, door_url: str, keep: bool):
    async with await psycopg.AsyncConnection.connect(door_url) as db:
        await db.execute("SELECT 1")
        await door.enqueue_async(db, [job(1), job(2)])
        assert there(door_url) == 0
        await (db.commit() if keep else db.rollback())
        assert there(door_url) == (2 if keep else 0)


async def test_async_connection_is_refused_in_synchronous_code(door: Door, door_url: str):
    async with await psycopg.AsyncConnection.connect(door_url) as db:
        with pytest.raises(InvalidValue) as refused:
            door.enqueue(db, [job(1)])
        assert "send_async" in refused.value.hint


async def test_sync_connection_can_be_used_from_async_code(door: Door, door_url: str):
    with psycopg.connect(door_url) as db:
        await door.enqueue_async(db, [job(1)])
        db.commit()
    assert there(door_url) == 1


async def test_cancelled_send_returns_the_connection_only_when_it_is_free(
    door_options: PostgresOptions, door_url: str
):
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Door):
        def insert(
            self, connection: Connection, jobs: Sequence[NewJob]
        ) -> tuple[list[Sent], Woken]:
            entered.set()
            assert go_on.wait(30)
            return super().insert(connection, jobs)

    async with await psycopg.AsyncConnection.connect(door_url) as db:
        task = asyncio.ensure_future(Slow(door_options).enqueue_async(db, [job(1)]))
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
def sessions(door_url: str) -> Iterator[sessionmaker[Session]]:
    made = create_engine(door_url.replace("postgresql://", "postgresql+psycopg://"))
    yield sessionmaker(made)
    made.dispose()


def test_session_commits_the_job_with_its_own_rows_and_announces_it(
    door: Door, sessions: sessionmaker[Session], door_url: str
):
    with sessions() as session:
        session.execute(text("INSERT INTO sent VALUES ('mine')"))
        door.enqueue(session, [job(1)])
        door.enqueue(session, [job(2)])
        assert (there(door_url), door.woken) == (0, [])
        session.commit()
        assert there(door_url) == 3
        assert door.woken == [{("main", None): None}] * 2
        session.execute(text("SELECT 1"))
        session.commit()
        assert len(door.woken) == 2


def test_session_that_rolls_back_leaves_and_announces_nothing(
    door: Door, sessions: sessionmaker[Session], door_url: str
):
    with sessions() as session:
        door.enqueue(session, [job(1)])
        session.rollback()
        door.enqueue(session, [job(2)])
        session.commit()
    assert there(door_url) == 1
    assert len(door.woken) == 1


def test_scoped_session_also_announces(door: Door, sessions: sessionmaker[Session], door_url: str):
    scoped = scoped_session(sessions)
    door.enqueue(scoped, [job(1)])
    scoped.commit()
    scoped.remove()
    assert (there(door_url), len(door.woken)) == (1, 1)


def test_savepoint_of_a_session_includes_the_job(
    door: Door, sessions: sessionmaker[Session], door_url: str
):
    with sessions.begin() as session:
        with session.begin_nested() as nested:
            door.enqueue(session, [job(1)])
            nested.rollback()
        door.enqueue(session, [job(2)])
    assert there(door_url) == 1


@pytest.mark.parametrize("keep", [True, False])
def test_sqlalchemy_connection_knows_that_a_transaction_has_started(
    door: Door, sessions: sessionmaker[Session], door_url: str, keep: bool
):
    engine = sessions.kw["bind"]
    with engine.connect() as db:
        door.enqueue(db, [job(1)])
        if keep:
            db.commit()
    assert there(door_url) == keep


# Django


def test_django_connection_is_opened_and_announces_its_commit(door: Door, door_url: str):
    wrapper = LikeDjango(door_url)
    try:
        with wrapper:
            door.enqueue(wrapper, [job(1)])
            assert (there(door_url), door.woken) == (0, [])
        assert (there(door_url), len(door.woken)) == (1, 1)
        with suppress(ZeroDivisionError), wrapper:
            door.enqueue(wrapper, [job(2)])
            raise ZeroDivisionError
        assert (there(door_url), len(door.woken)) == (1, 1)
        door.enqueue(wrapper, [job(3)])
        assert (there(door_url), len(door.woken)) == (2, 2)
    finally:
        wrapper.close()
