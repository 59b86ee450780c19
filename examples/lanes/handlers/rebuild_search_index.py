"""rebuild_search_index: rebuilds the full-text index of boards, cards and posts."""

from __future__ import annotations

import sqlite3

import headway as hw
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(timeout="30m")
    def rebuild_search_index(job: hw.Job) -> int:
        del job  # a second run builds the same index
        with world.database.write() as db:
            return _rebuild(db)


def _rebuild(db: sqlite3.Connection) -> int:
    """Rebuild the index within the transaction: until it commits, searches use the old index."""
    db.execute("DROP TABLE IF EXISTS search")
    db.execute("CREATE VIRTUAL TABLE search USING fts5 (what, ref UNINDEXED, text)")
    db.execute("INSERT INTO search SELECT 'board', id, title || ' ' || summary FROM board")
    db.execute("INSERT INTO search SELECT 'card', id, text FROM card")
    db.execute("INSERT INTO search SELECT 'post', id, text FROM post WHERE state = 'published'")
    return db.execute("SELECT count(*) FROM search").fetchone()[0]
