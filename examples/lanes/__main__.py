"""Fill the application's database with sample data, and send one job of each type.

python -m examples.lanes
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import headway as hw
from examples.lanes.app import app
from examples.lanes.world import World, world_from

PROSPECTS = """email,name,company,phone
grace.hopper@navy.example,,US Navy,+1 (202) 555-0123
Grace.Hopper@navy.example,Grace Hopper,,
ada@engines.example,Ada,Engines Ltd,
not an address,,,
"""


def fill(world: World) -> None:
    """Write a board with cards and members, an invoice, old sessions, logs and metrics."""
    old = (datetime.now(UTC) - timedelta(days=60)).isoformat(timespec="seconds")
    with world.database.write() as db:
        for table in ("board", "card", "member", "post", "prospect", "invoice", "invoice_line"):
            db.execute(f"DELETE FROM {table}")  # noqa: S608  (names of this list only)
        db.execute("INSERT INTO board (id, title) VALUES (1, 'Tea or coffee?'), (2, 'Old board')")
        db.executemany(
            "INSERT INTO card (board, author, text, at) VALUES (1, ?, ?, ?)",
            [
                ("Ada", "Tea keeps well, and many people like tea.", old),
                ("Bob", "Coffee wakes people up in the morning.", old),
                ("Ada", "Perhaps both: tea for most people, coffee in the morning.", old),
            ],
        )
        db.executemany(
            "INSERT INTO member (board, email, name) VALUES (1, ?, ?)",
            [(f"{name.lower()}@example.org", name) for name in ("Ada", "Bob", "Cleo")],
        )
        db.execute("INSERT INTO post (id, board, text) VALUES (1, 1, 'We will have both.')")
        db.execute(
            "INSERT INTO prospect (id, email, name) VALUES (1, 'x@engines.example', 'Xavier')"
        )
        db.execute("INSERT INTO invoice VALUES ('2026-7', 'ada@example.org', 'EUR')")
        db.execute("INSERT INTO invoice_line VALUES ('2026-7', 1, 'Tea', '12.50')")
        db.execute("INSERT OR IGNORE INTO session VALUES ('s1', 'ada@example.org', ?)", (old,))
        db.execute("INSERT INTO log (at, text) VALUES (?, 'something old')", (old,))
        db.execute("INSERT INTO metric VALUES (?, 'cards', 3)", (old,))
    Path(world.imports, "prospects.csv").write_text(PROSPECTS, encoding="utf-8")


def send(app: hw.App) -> int:
    """Send one job of each type; return their number."""
    since = "2000-01-01"
    jobs = [
        app.kind("send_email").make(to="ada@example.org", title="Hello", text="It works.\n"),
        app.kind("send_outreach").make(
            prospect=1, title="Hello {name}", text="Tea for {company}?\n"
        ),
        app.kind("send_digest").make(board=1, since=since),
        app.kind("send_invoice").make(number="2026-7"),
        app.kind("notify_push").make(device="ada's phone", title="Hello"),
        app.kind("import_prospects").make(file="prospects.csv"),
        app.kind("dedup_prospects").make(due=_soon()),
        app.kind("enrich_prospect").make(prospect=1),
        app.kind("rebuild_search_index").make(),
        app.kind("ai_summarize_board").make(board=1, sentences=1),
        app.kind("ai_suggest_post").make(board=1),
        app.kind("gpt_ai_cofac_nudging").make(board=1),
        app.kind("publish_post").make(post=1),
        app.kind("close_board").make(board=2),
        app.kind("archive_board").make(board=2, due=_soon()),
        app.kind("purge_sessions").make(),
        app.kind("vacuum_logs").make(),
        app.kind("metric_rollup").make(),
        app.kind("health_check").make(),
        app.kind("noop").make(),
    ]
    with app:
        return len(app.send_many(jobs))


def _soon() -> datetime:
    """Return a due time after the jobs that must run first."""
    return datetime.now(UTC) + timedelta(seconds=2)


def main() -> None:
    """Fill the database and send the jobs."""
    fill(world_from())
    print(f"{send(app)} jobs were sent; now: headway worker examples.lanes.app")


if __name__ == "__main__":
    main()
