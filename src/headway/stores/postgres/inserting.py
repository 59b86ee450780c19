"""Inserting within a caller's own transaction: the jobs exist if and only if it commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import psycopg

from headway.contract.enqueue import Enqueued
from headway.core.errors import InvalidValue
from headway.core.job import NewJob
from headway.stores.postgres.connection import Connection
from headway.stores.postgres.failures import Failure, explain
from headway.stores.postgres.guests import (
    Driver,
    after_commit,
    as_guest,
    check_usable,
    find_driver,
    find_driver_async,
)
from headway.stores.postgres.options import PostgresOptions

Woken = dict[tuple[str | None, int | None], None]
Insert = Callable[[Connection, Sequence[NewJob]], tuple[list[Enqueued], Woken]]
"""Inserts in a part of the open transaction, which it undoes itself when it raises; says which
lanes it would wake."""

Result = TypeVar("Result")


class Inserting:
    """The door of transactional enqueue.

    Args:
        announce: wakes lanes, once they are committed.
    """

    def __init__(
        self, options: PostgresOptions, insert: Insert, announce: Callable[[Woken], None]
    ) -> None:
        self._options = options
        self._insert = insert
        self._announce = announce

    def enqueue(self, given: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """See `InsertsWithin.enqueue_within`.

        Raises:
            InvalidValue: it is no connection that can be used here.
            StoreError: the database refused; the transaction is as it was before.
        """
        driver = find_driver(given)
        if not isinstance(driver, psycopg.Connection):
            message = "the connection is one that is awaited"
            raise InvalidValue(message, hint="await app.send_async(..., connection=...)")
        with driver.lock:
            replies, woken = self._within(driver, jobs)
        self._tell(given, driver, woken)
        return replies

    async def enqueue_async(self, given: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """See `InsertsWithin.enqueue_within_async`.

        Raises:
            InvalidValue: it is no connection that can be used here.
            StoreError: the database refused; the transaction is as it was before.
        """
        driver = await find_driver_async(given)
        if isinstance(driver, psycopg.Connection):
            with_lock = driver

            def locked() -> tuple[list[Enqueued], Woken]:
                with with_lock.lock:
                    return self._within(with_lock, jobs)

            replies, woken = await _whole(locked)
        else:
            async with driver.lock:
                replies, woken = await _whole(lambda: self._within(driver, jobs))
        self._tell(given, driver, woken)
        return replies

    def _within(self, driver: Driver, jobs: Sequence[NewJob]) -> tuple[list[Enqueued], Woken]:
        check_usable(driver)
        try:
            with as_guest(driver) as guest:
                return self._insert(guest, jobs)
        except Failure as error:
            raise explain(error, self._options) from error

    def _tell(self, given: object, driver: Driver, woken: Woken) -> None:
        if not woken:
            return
        if driver.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            # It was a transaction of its own, and is committed.
            self._announce(woken)
        elif (register := after_commit(given)) is not None:
            register(lambda: self._announce(woken))


async def _whole(work: Callable[[], Result]) -> Result:
    """Run something in a thread, to its end even if its caller was cancelled.

    A connection must not be used by its owner while the thread still speaks on it.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue
        raise
