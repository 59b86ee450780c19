"""Enqueueing on async sessions of SQLAlchemy."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headway.core.errors import InvalidValue
from tests.postgres.door import Door, job, there

pytest.importorskip("greenlet", reason="SQLAlchemy's asyncio needs greenlet")
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    create_async_engine,
)


@pytest.fixture
async def engine(door_url: str) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(door_url.replace("postgresql://", "postgresql+psycopg://"))
    yield made
    await made.dispose()


@pytest.mark.parametrize("keep", [True, False])
async def test_async_session_keeps_the_same_promise_and_announces(
    door: Door, engine: AsyncEngine, door_url: str, keep: bool
):
    async with AsyncSession(engine) as session:
        await door.enqueue_async(session, [job(1)])
        assert there(door_url) == 0
        await (session.commit() if keep else session.rollback())
    assert there(door_url) == keep
    assert len(door.woken) == keep


async def test_async_sqlalchemy_connection_commits_the_job(
    door: Door, engine: AsyncEngine, door_url: str
):
    async with engine.connect() as db:
        await door.enqueue_async(db, [job(1)])
        await db.commit()
    assert there(door_url) == 1


async def test_async_sessions_are_refused_in_synchronous_code(
    door: Door, engine: AsyncEngine, door_url: str
):
    async with AsyncSession(engine) as session, engine.connect() as db:
        for given in (session, db):
            with pytest.raises(InvalidValue, match="one that is awaited") as refused:
                door.enqueue(given, [job(1)])
            assert "send_async" in refused.value.hint
    assert there(door_url) == 0
