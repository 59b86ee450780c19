"""Migrating rows from a running older system and back: each row has one owner at a time."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headway.contract.definitions import Role
from headway.runtime.timing import REAL
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database
from tests.systems.calls.source_table.databases import COLUMNS, STATUSES, make_theirs, settings_of
from tests.systems.calls.source_table.served import Served
from tests.systems.calls.source_table.site import calling
from tests.systems.telephony.carrier_rig import CarrierRig, carrying

ROOT = Path(__file__).parents[4]
NUMBERS = [f"+1555000100{n}" for n in range(3)]
LIMIT_S = 150.0
"""Longer than the lease of a killed worker."""


@pytest.fixture
def theirs(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    """Create the older system's database."""
    with fresh_database(fast_postgres_server.url) as url:
        yield url


@contextmanager
def older_system(url: str, leads: int, within_s: int) -> Iterator[None]:
    """Run the older system until the block exits; it completes the calls it has started."""
    words = [sys.executable, "-m", "tests.systems.calls.source_table.older_system", url]
    words += [str(leads), str(within_s)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"calls\n"
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def settings(url: str, carrier: CarrierRig, migration: str) -> str:
    columns = ", ".join(f'{field} = "{name}"' for field, name in COLUMNS.items())
    statuses = ", ".join(f'{word} = "{said}"' for word, said in STATUSES.items())
    provider = "\n".join(f'{name} = "{value}"' for name, value in carrier.settings().items())
    return f"""
[telephony.twilio]
{provider}

[calls]
jitter = "0s"
call_deadline = "5s"
listing_lag = "1s"

[calls.template]
retry_on = ["BUSY", "NO_ANSWER", "FAILED", "WEBHOOK_LOST"]
retry_offset = "1s"

[calls.table]
url = "{url}"
table = "their_leads"
columns = {{ {columns} }}
statuses = {{ {statuses} }}
owners = {{ theirs = "legacy" }}
every = "1s"

[calls.migration]
talk = "100ms"
{migration}
"""


class World:
    """The calls made by both systems.

    Args:
        url: URL of the database that both systems work on.
        carrier: the carrier that places our calls.
    """

    def __init__(self, url: str, carrier: CarrierRig) -> None:
        self._url = url
        self._carrier = carrier

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as link:
            return await (await link.execute(query)).fetchall()

    async def prepare(self) -> None:
        await make_theirs(self._url)
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as link:
            await link.execute(
                "CREATE TABLE their_ledger (lead_no bigint, msisdn text, at timestamptz)"
            )
            await link.execute("CREATE SEQUENCE phones")

    def ours(self) -> Counter[str]:
        """Return the leads that we called, and how often."""
        return Counter(one.plan.to for one in self._carrier.network.ledger.calls.values())

    async def others(self) -> Counter[str]:
        """Return the leads that the older system called, and how often."""
        return Counter(phone for (phone,) in await self.rows("SELECT msisdn FROM their_ledger"))

    async def count(self, where: str) -> int:
        rows = await self.rows("SELECT count(*) FROM their_leads WHERE " + where)  # noqa: S608  (the test's own words)
        return rows[0][0]

    async def judge(self, leads: int) -> None:
        """Check that each lead was called once, by the owner of its row."""
        ours, others = self.ours(), await self.others()
        assert set(ours) & set(others) == set()
        assert ours + others == Counter(dict.fromkeys({*ours, *others}, 1))
        assert len(ours) + len(others) == leads
        by_owner = dict(await self.rows("SELECT handled_by, count(*) FROM their_leads GROUP BY 1"))
        assert by_owner == {"headway": len(ours), "legacy": len(others)}
        assert self._carrier.network.ledger.twice() == {}

    async def until(
        self, holds: Callable[[], Any], what: str, served: Served | None = None
    ) -> None:
        end = REAL.monotonic() + LIMIT_S
        while not await holds():
            if REAL.monotonic() > end:
                standing = await self.rows(
                    "SELECT handled_by, state, count(*) FROM their_leads GROUP BY 1, 2"
                )
                log = "" if served is None else served.log[-4_000:]
                called = f"we called {len(self.ours())}\n{log}"
                message = f"never {what}: {standing}, {called}"
                raise AssertionError(message)
            await REAL.pause(0.1)


async def choose(
    served: Served, mode: str, percent: float, resellers: Sequence[str] = ()
) -> dict[str, Any]:
    body = {"mode": mode, "percent": percent, "resellers": list(resellers)}
    reply = await served.ask("PUT", "/calls/migration", body)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def add_numbers(served: Served) -> None:
    for number in NUMBERS:
        body = {"number": number, "provider": "twilio", "maximum_channels": 3}
        reply = await served.ask("POST", "/numbers", body)
        assert reply.status_code == 201, reply.text


@dataclass(frozen=True, kw_only=True)
class Size:
    """Scale of the test.

    Attributes:
        leads: leads that the older system takes in.
        within_s: seconds within which they are due.
        theirs: calls that the older system makes before any rows are taken from it.
        steps: percentages, and how many calls we make at each before we are killed.
    """

    leads: int
    within_s: int
    theirs: int
    steps: tuple[tuple[float, int], ...]


@pytest.mark.slow
async def test_no_lead_is_called_by_both_or_neither_while_rows_change_hands_and_return(
    theirs: str, tmp_path: Path
) -> None:
    leads = 100
    async with carrying(speed=1_000, ring="1s", talk="20s", numbers=NUMBERS) as carrier:
        world = World(theirs, carrier)
        await world.prepare()
        async with calling(
            carrier,
            f"sqlite:///{tmp_path}/jobs.db",
            f"sqlite:///{tmp_path}/directory.db",
            table=settings_of(theirs, every="1s"),
            numbers=dict.fromkeys(NUMBERS, 3),
        ) as site:

            async def chosen(percent: float) -> None:
                body = {"mode": "adopt", "percent": percent}
                reply = await site.rig.call(Role.OPERATOR, "PUT", "/calls/migration", body)
                assert reply.status_code == 200, reply.text

            async def we_call() -> bool:
                return len(world.ours()) >= 10 and len(await world.others()) >= 5

            async def all_done() -> bool:
                done = await world.count("state = 'closed'")
                return done == leads == await world.count("true")

            with older_system(theirs, leads, within_s=4):
                await chosen(50)
                await world.until(we_call, "both call")
                await chosen(0)
                await world.until(all_done, "all are done")
        await world.judge(leads)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_no_lead_is_called_by_both_or_neither_though_the_process_is_killed_once(
    theirs: str, tmp_path: Path
) -> None:
    await migrate(theirs, tmp_path, Size(leads=150, within_s=8, theirs=5, steps=((100, 15),)))


async def migrate(theirs: str, folder: Path, size: Size) -> None:
    """Shadow, adopt one reseller, then growing shares, with a kill at each, and go back."""
    async with carrying(speed=1_000, ring="1s", talk="20s", numbers=NUMBERS) as carrier:
        world = World(theirs, carrier)
        await world.prepare()
        served = Served(
            folder / "ours", settings(theirs, carrier, 'mode = "shadow"\npercent = 100')
        )
        try:
            await served.start()
            await add_numbers(served)
            with older_system(theirs, size.leads, size.within_s):
                await watch(world, served, size)
                await adopt(world, served, size)

                async def all_done() -> bool:
                    done = await world.count("state = 'closed'")
                    return done == size.leads == await world.count("true")

                await world.until(all_done, "all are done", served)
        finally:
            served.stop()
        await world.judge(size.leads)


async def watch(world: World, served: Served, size: Size) -> None:
    """Wait until leads have been decided in shadow mode, and check that we made no call."""

    async def decided() -> bool:
        told = (await served.ask("GET", "/calls/migration/shadow")).json()["comparison"]
        return told["decided"] >= size.theirs and len(await world.others()) >= size.theirs

    await world.until(decided, "decided in the shadow", served)
    assert world.ours() == Counter()
    assert await world.count("handled_by <> 'legacy'") == 0


async def adopt(world: World, served: Served, size: Size) -> None:
    """Adopt one reseller's rows, then shares of all with a kill at each, and give back the rest."""
    await choose(served, "adopt", 100, ["partner 1"])

    async def one_resellers() -> bool:
        return await world.count("handled_by = 'headway'") > 0

    await world.until(one_resellers, "a reseller's rows are ours", served)
    assert await world.count("handled_by = 'headway' AND partner <> 'partner 1'") == 0
    for percent, calls in size.steps:
        await choose(served, "adopt", percent)
        before = len(world.ours())

        async def we_called(least: int = before + calls) -> bool:
            return len(world.ours()) >= least

        await world.until(we_called, f"called at {percent} %", served)
        # Killed during calls, with rows being processed, and possibly half of a batch.
        await served.kill()
        chosen = (await served.ask("GET", "/calls/migration")).json()
        assert (chosen["mode"], chosen["percent"]) == ("adopt", percent)
    await choose(served, "adopt", 0)
