"""The page about one claim on PostgreSQL shows exactly the statements that such claims send."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from headway.stores.postgres.link import Link
from tests.docs.pages import ROOT, Page, read_page
from tests.scale.trips import LINES, LOCK, Site, site
from tests.servers.stores import NewUrl

PAGE = ROOT / "docs" / "explanation" / "one-claim-as-sql.md"
PLAIN = "A plain lane: one trip"
SHARED = "A lane with a shared gate: two trips"
KEYED = "A lane with a keyed gate: three trips"
REPEATED = "-- The statements of the first trip above, then:\n"

Trip = list[str]
"""The statements of a trip, without comments and line breaks."""

_GAP = re.compile(r"…|<[a-z][^<>]*>")
_TABLE = re.compile(r"@(?!now\b)(\w+)")
_USED = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM|FROM|JOIN) @(\w+)")


def plain(sql: str) -> str:
    """Return SQL without comments, and with spaces only where they separate words."""
    spaced = " ".join(re.sub(r"--.*", "", sql).split())
    return spaced.replace("( ", "(").replace(" )", ")")


def trips_of(page: Page) -> dict[str, list[Trip]]:
    """Return the trips under each heading of the page."""
    found: dict[str, list[Trip]] = {}
    for block in page.blocks:
        above = (line for line in reversed(page.prose[: block.line]) if line.startswith("## "))
        trips = found.setdefault(next(above).removeprefix("## "), [])
        texts = [plain(text) for text in plain(block.text).split(";")]
        assert texts.pop() == "", f"line {block.line}: the last statement has no semicolon"
        trips.append([*found[SHARED][0], *texts] if block.text.startswith(REPEATED) else texts)
    return found


def uses(sql: str) -> set[tuple[str, str]]:
    """Return each verb of a statement with its table."""
    found = {
        (verb.replace("JOIN", "FROM"), table) for verb, table in _USED.findall(_GAP.sub(" ", sql))
    }
    assert {table for _, table in found} == set(_TABLE.findall(_GAP.sub(" ", sql))), sql
    return found


def assert_shortened(shown: str, sent: str) -> None:
    """Fail unless the shown statement is the sent one with gaps, and names each use of a table."""
    position = 0
    parts = [part.strip() for part in _GAP.split(shown)]
    assert sent.startswith(parts[0]), f"{shown}\nis not how this begins:\n{sent}"
    for part in parts:
        at = sent.find(part, position)
        assert at >= 0, f"{part}\nis not in the rest of the statement:\n{sent[position:]}"
        position = at + len(part)
    assert sent.endswith(parts[-1]), f"{shown}\nis not how this ends:\n{sent}"
    assert uses(shown) == uses(sent), f"{shown}\ndoes not use the tables as this does:\n{sent}"


async def add_plain(here: Site) -> None:
    await here.add([here.new() for _ in range(3)])


async def add_shared(here: Site) -> None:
    await here.add([here.new(here.use(LINES)) for _ in range(3)])


async def add_keyed(here: Site) -> None:
    """Add two jobs of each phone: a claim finds a lock that is held, and one that is free."""
    await here.add([here.new(here.use(LOCK, phone=1 + n // 2)) for n in range(8)])


async def last_of_three_claims(here: Site, sent: list[Trip]) -> None:
    """Claim as often as a process needs to know its lane; then keep what the next claim sends."""
    for _ in range(3):
        here.clock.advance(10)
        sent.clear()
        assert len((await here.worker.ask(1)).jobs) == 1


@pytest.mark.parametrize(
    ("heading", "add"),
    [(PLAIN, add_plain), (SHARED, add_shared), (KEYED, add_keyed)],
    ids=["plain", "shared", "keyed"],
)
async def test_page_shows_each_statement_of_each_trip(
    heading: str,
    add: Callable[[Site], Awaitable[None]],
    new_url: NewUrl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Trip] = []
    run = Link.run

    def logged(self: Link, batch: Sequence[Any]) -> Any:
        sent.append([plain(text) for text, _ in batch])
        return run(self, batch)

    async with site(new_url("postgresql")) as here:
        await add(here)
        monkeypatch.setattr(Link, "run", logged)
        await last_of_three_claims(here, sent)
    shown = trips_of(read_page(PAGE))[heading]
    assert [len(trip) for trip in shown] == [len(trip) for trip in sent]
    assert heading.split(": ")[1].startswith(("one", "two", "three")[len(sent) - 1])
    for shown_trip, sent_trip in zip(shown, sent, strict=True):
        for one, other in zip(shown_trip, sent_trip, strict=True):
            assert_shortened(one, other)
