"""Enqueueing on async sessions of SQLAlchemy."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headway.core.errors import InvalidValue
from tests.postgres.caller_inserts import CallerInserts, job, there

pytest.importorskip("greenlet", reason="SQLAlchemy's asyncio needs greenlet")
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    create_async_engine,
)


@pytest.fixture
async def engine(caller_url: str) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(caller_url.replace("postgresql://", "postgresql+psycopg://"))
    yield made
    await made.dispose()


@pytest.mark.parametrize("keep", [True, False])
async def test_async_session_keeps_the_same_promise_and_announces(
    inserts: CallerInserts, engine: AsyncEngine, caller_url: str, keep: bool
):
    async with AsyncSession(engine) as session:
        await inserts.enqueue_async(session, [job(1)])
        assert there(caller_url) == 0
        await (session.commit() if keep else session.rollback())
    assert there(caller_url) == keep
    assert len(inserts.woken) == keep


async def test_async_sqlalchemy_connection_commits_the_job(
    inserts: CallerInserts, engine: AsyncEngine, caller_url: str
):
    async with engine.connect() as db:
        await inserts.enqueue_async(db, [job(1)])
        await db.commit()
    assert there(caller_url) == 1


async def test_async_sessions_are_refused_in_synchronous_code(
    inserts: CallerInserts, engine: AsyncEngine, caller_url: str
):
    async with AsyncSession(engine) as session, engine.connect() as db:
        for given in (session, db):
            with pytest.raises(InvalidValue, match="one that is awaited") as refused:
                inserts.enqueue(given, [job(1)])
            assert "send_async" in refused.value.hint
    assert there(caller_url) == 0
