"""dedup_prospects: merges prospects with the same address into the first one."""

from __future__ import annotations

import sqlite3

import headway as hw
from examples.lanes.world import World

KNOWN = ("name", "company", "phone")


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(lane="import_prospects", timeout="30m")
    def dedup_prospects(job: hw.Job) -> dict[str, int]:
        return world.database.once(job.id, _dedup)


def _dedup(db: sqlite3.Connection) -> dict[str, int]:
    groups: dict[str, list[sqlite3.Row]] = {}
    rows = db.execute(
        "SELECT id, lower(trim(email)) AS address, name, company, phone FROM prospect"
        " WHERE duplicate_of IS NULL ORDER BY id"
    )
    for row in rows:
        groups.setdefault(row["address"], []).append(row)
    marked = 0
    for first, *others in groups.values():
        if not others:
            continue
        learnt = [next((row[what] for row in (first, *others) if row[what]), "") for what in KNOWN]
        db.execute(
            "UPDATE prospect SET name = ?, company = ?, phone = ? WHERE id = ?",
            (*learnt, first["id"]),
        )
        db.executemany(
            "UPDATE prospect SET duplicate_of = ? WHERE id = ?",
            [(first["id"], other["id"]) for other in others],
        )
        marked += len(others)
    return {"prospects": len(groups), "duplicates": marked}
