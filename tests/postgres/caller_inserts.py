"""Enqueueing on callers' connections, with an insertion that replaces the store's."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from headway.contract.store import Sent
from headway.core.errors import KeyConflict
from headway.core.job import NewJob, derived_id
from headway.stores.postgres.caller_transactions import Inserting, Woken
from headway.stores.postgres.connection import Connection
from headway.stores.postgres.options import PostgresOptions


class CallerInserts(Inserting):
    """Enqueues on callers' connections, and records the wakes."""

    def __init__(self, options: PostgresOptions) -> None:
        self.woken: list[Woken] = []
        super().__init__(options, self.insert, self.woken.append)

    def insert(self, connection: Connection, jobs: Sequence[NewJob]) -> tuple[list[Sent], Woken]:
        connection.execute("SAVEPOINT part")
        try:
            with connection.pipeline():
                for job in jobs:
                    connection.execute("INSERT INTO sent VALUES (%s, %s)", (job.id, job.args))
        except psycopg.errors.UniqueViolation as error:
            connection.execute("ROLLBACK TO SAVEPOINT part")
            message = "it is there already"
            raise KeyConflict(message) from error
        connection.execute("RELEASE SAVEPOINT part")
        return [Sent(job.id, created=True) for job in jobs], {("main", None): None}


def job(number: int) -> NewJob:
    return NewJob(id=derived_id("callers", number), kind="noop", args=b'{"n":%d}' % number)


def there(url: str) -> int:
    with psycopg.connect(url) as db:
        row = db.execute("SELECT count(*) FROM sent").fetchone()
    assert row is not None
    return row[0]
