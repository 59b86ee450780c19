"""enrich_prospect: derives a prospect's name and company from the address and from colleagues."""

from __future__ import annotations

import re
import sqlite3
from functools import partial

import headway as hw
from examples.lanes.database import now
from examples.lanes.world import World

PERSONAL = frozenset({"gmail.com", "outlook.com", "hotmail.com", "yahoo.com", "icloud.com"})
"""Domains that do not show an employer."""


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(lane="enrich", timeout="5m")
    def enrich_prospect(job: hw.Job, prospect: int) -> dict[str, str]:
        return world.database.once(job.id, partial(_enrich, prospect=prospect))


def _enrich(db: sqlite3.Connection, *, prospect: int) -> dict[str, str]:
    row = db.execute("SELECT * FROM prospect WHERE id = ?", (prospect,)).fetchone()
    if row is None:
        reason = f"there is no prospect {prospect}"
        raise hw.Dead(reason)
    person, _, domain = row["email"].strip().lower().partition("@")
    known = {
        "name": row["name"] or " ".join(re.split(r"[._+-]+", person)).title(),
        "company": row["company"] or _company(db, domain),
        "phone": re.sub(r"(?!^\+)\D", "", row["phone"]),
    }
    db.execute(
        "UPDATE prospect SET name = :name, company = :company, phone = :phone, enriched_at = :at"
        " WHERE id = :id",
        {**known, "at": now(), "id": prospect},
    )
    return known


def _company(db: sqlite3.Connection, domain: str) -> str:
    """Return the most frequent company of colleagues, or else the domain's name."""
    if domain in PERSONAL:
        return ""
    row = db.execute(
        "SELECT company FROM prospect WHERE email LIKE ? ESCAPE '!' AND company <> ''"
        " GROUP BY company ORDER BY count(*) DESC, company LIMIT 1",
        ("%@" + re.sub(r"([!%_])", r"!\1", domain),),
    ).fetchone()
    return row["company"] if row else domain.partition(".")[0].title()
