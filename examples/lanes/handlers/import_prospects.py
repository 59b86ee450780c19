"""import_prospects: imports prospects from a CSV file."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import headway as hw
from examples.lanes.world import World

STEP = 500
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")

Row = dict[str, str]


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(lane="import_prospects", subject="{file}", timeout="30m")
    def import_prospects(job: hw.Job, file: str) -> dict[str, int]:
        """Store rows in steps, each together with the number of rows done.

        A second run of the job continues after the last stored step, so no row is stored twice or
        skipped.

        Raises:
            Dead: there is no such file, or it has no column `email`.
            Retry: the job was asked to stop.
        """
        path = _inside(world.imports, file)
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.DictReader(lines)
            if "email" not in (rows.fieldnames or ()):
                reason = f"{file} has no column email"
                raise hw.Dead(reason)
            through = _through(world, job.id)
            for _ in islice(rows, through["rows"]):
                pass
            while step := list(islice(rows, STEP)):
                if job.cancelled:
                    raise hw.Retry("asked to stop; the next run goes on from here")
                through = _store(world, job.id, step)
                job.sync.progress(through)
        return through


def _inside(folder: Path, file: str) -> Path:
    """Return a file in the folder, and refuse paths that lead out of it.

    Raises:
        Dead: there is no such file in the folder.
    """
    root = folder.resolve()
    path = (root / file).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        reason = f"there is no file {file!r} to import"
        raise hw.Dead(reason)
    return path


def _through(world: World, job: str) -> dict[str, int]:
    with world.database.read() as db:
        row = db.execute("SELECT rows, stored, refused FROM import WHERE job = ?", (job,))
        found = row.fetchone()
    return dict(found) if found else {"rows": 0, "stored": 0, "refused": 0}


def _store(world: World, job: str, step: Sequence[Row]) -> dict[str, int]:
    good = [row for row in step if _EMAIL.fullmatch((row["email"] or "").strip())]
    with world.database.write() as db:
        db.executemany(
            "INSERT INTO prospect (email, name, company, phone) VALUES (?, ?, ?, ?)",
            [
                tuple(
                    (row.get(name) or "").strip() for name in ("email", "name", "company", "phone")
                )
                for row in good
            ],
        )
        db.execute(
            "INSERT INTO import (job, rows, stored, refused)"
            " VALUES (:job, :rows, :stored, :refused)"
            " ON CONFLICT (job) DO UPDATE SET rows = rows + :rows, stored = stored + :stored,"
            " refused = refused + :refused",
            {
                "job": job,
                "rows": len(step),
                "stored": len(good),
                "refused": len(step) - len(good),
            },
        )
        return dict(
            db.execute("SELECT rows, stored, refused FROM import WHERE job = ?", (job,)).fetchone()
        )
