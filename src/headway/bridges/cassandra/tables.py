"""The tables of a calendar, and every statement that is sent to them.

`{t}` is the calendar's name, such as `headway.scheduled_notifications`.
"""

from __future__ import annotations

from enum import Enum

TABLES = {
    "": """
        CREATE TABLE IF NOT EXISTS {t} (
            minute_bucket text, shard int, scheduled_at timestamp, id uuid, job blob,
            PRIMARY KEY ((minute_bucket, shard), scheduled_at, id)
        ) WITH CLUSTERING ORDER BY (scheduled_at ASC, id ASC)""",
    "_index": """
        CREATE TABLE IF NOT EXISTS {t}_index (
            name text PRIMARY KEY, id uuid, scheduled_at timestamp, body blob
        )""",
    "_refused": """
        CREATE TABLE IF NOT EXISTS {t}_refused (
            id uuid PRIMARY KEY, scheduled_at timestamp, job blob, reason text, refused_at timestamp
        )""",
    "_progress": """
        CREATE TABLE IF NOT EXISTS {t}_progress (
            name text PRIMARY KEY, shards int, done_through bigint, read_through bigint,
            rows_read bigint, enqueued bigint, late bigint, refused bigint,
            leader text, seen_at timestamp
        )""",
}
"""By what follows the calendar's name. The index knows where a job lies, by its id or its key."""


class Cql(Enum):
    """A statement; its parameters in the order of its question marks."""

    PUT_ROW = """
        INSERT INTO {t} (minute_bucket, shard, scheduled_at, id, job) VALUES (?, ?, ?, ?, ?)
        USING TIMESTAMP ?"""
    GET_ROW = """
        SELECT job, writetime(job) FROM {t}
        WHERE minute_bucket = ? AND shard = ? AND scheduled_at = ? AND id = ?"""
    READ_BUCKET = """
        SELECT scheduled_at, id, job, writetime(job) FROM {t}
        WHERE minute_bucket = ? AND shard = ?"""
    DROP_ROW = """
        DELETE FROM {t} USING TIMESTAMP ?
        WHERE minute_bucket = ? AND shard = ? AND scheduled_at = ? AND id = ?"""
    DROP_BUCKET = "DELETE FROM {t} USING TIMESTAMP ? WHERE minute_bucket = ? AND shard = ?"

    PUT_INDEX = """
        INSERT INTO {t}_index (name, id, scheduled_at, body) VALUES (?, ?, ?, ?)
        USING TTL ? AND TIMESTAMP ?"""
    CLAIM_KEY = """
        INSERT INTO {t}_index (name, id, scheduled_at, body) VALUES (?, ?, ?, ?)
        IF NOT EXISTS USING TTL ?"""
    GET_INDEX = "SELECT id, scheduled_at, body FROM {t}_index WHERE name = ?"

    PUT_REFUSED = """
        INSERT INTO {t}_refused (id, scheduled_at, job, reason, refused_at) VALUES (?, ?, ?, ?, ?)
        USING TIMESTAMP ?"""
    LIST_REFUSED = "SELECT id, scheduled_at, job, reason, writetime(reason) FROM {t}_refused"
    DROP_REFUSED = "DELETE FROM {t}_refused USING TIMESTAMP ? WHERE id = ?"

    MAKE_PROGRESS = """
        INSERT INTO {t}_progress
            (name, shards, done_through, read_through, rows_read, enqueued, late, refused)
        VALUES ('progress', ?, ?, ?, 0, 0, 0, 0) IF NOT EXISTS"""
    GET_PROGRESS = """
        SELECT shards, done_through, read_through, rows_read, enqueued, late, refused, leader,
            seen_at FROM {t}_progress WHERE name = 'progress'"""
    PUT_PROGRESS = """
        UPDATE {t}_progress USING TIMESTAMP ? SET done_through = ?, read_through = ?,
            rows_read = ?, enqueued = ?, late = ?, refused = ?, leader = ?, seen_at = ?
        WHERE name = 'progress'"""

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return not self.value.lstrip().startswith("SELECT")
