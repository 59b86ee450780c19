"""Rows of an older system that goes on working come to us and go back, one hand at a time."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headway.runtime.timing import REAL
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database
from tests.systems.calls.truth.databases import COLUMNS, STATUSES, make_theirs
from tests.systems.calls.truth.served import Served
from tests.systems.telephony.carrier_rig import CarrierRig, carrying

ROOT = Path(__file__).parents[4]
NUMBERS = [f"+1555000100{n}" for n in range(3)]
LEADS = 500
LIMIT_S = 150.0


@pytest.fixture
def theirs(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    """The older system's database."""
    with fresh_database(fast_postgres_server.url) as url:
        yield url


@contextmanager
def older_system(url: str, leads: int) -> Iterator[None]:
    """The older system, until the block ends; what it has begun it ends."""
    words = [sys.executable, "-m", "tests.systems.calls.truth.older_system", url, str(leads)]
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
{migration}
"""


class World:
    """What both systems did.

    Args:
        url: of the database that both work on.
        carrier: who places our calls.
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
        """Whom we called, and how often."""
        return Counter(one.plan.to for one in self._carrier.world.ledger.calls.values())

    async def others(self) -> Counter[str]:
        """Whom the older system called, and how often."""
        return Counter(phone for (phone,) in await self.rows("SELECT msisdn FROM their_ledger"))

    async def count(self, where: str) -> int:
        rows = await self.rows("SELECT count(*) FROM their_leads WHERE " + where)  # noqa: S608  (the test's own words)
        return rows[0][0]

    async def until(self, holds: Callable[[], Any], what: str, served: Served) -> None:
        end = REAL.monotonic() + LIMIT_S
        while not await holds():
            if REAL.monotonic() > end:
                standing = await self.rows(
                    "SELECT handled_by, state, count(*) FROM their_leads GROUP BY 1, 2"
                )
                called = f"we called {len(self.ours())}\n{served.log[-4_000:]}"
                message = f"never {what}: {standing}, {called}"
                raise AssertionError(message)
            await REAL.pause(0.1)


async def choose(served: Served, mode: str, percent: float) -> dict[str, Any]:
    reply = await served.ask("PUT", "/calls/migration", {"mode": mode, "percent": percent})
    assert reply.status_code == 200, reply.text
    return reply.json()


async def add_numbers(served: Served) -> None:
    for number in NUMBERS:
        body = {"number": number, "provider": "twilio", "maximum_channels": 3}
        reply = await served.ask("POST", "/numbers", body)
        assert reply.status_code == 201, reply.text


@pytest.mark.timeout(600)
async def test_no_lead_is_called_by_both_and_none_by_neither_while_rows_change_hands(
    theirs: str, tmp_path: Path
) -> None:
    async with carrying(speed=1_000, ring="1s", talk="20s", numbers=NUMBERS) as carrier:
        world = World(theirs, carrier)
        await world.prepare()
        served = Served(tmp_path / "ours", settings(theirs, carrier, 'mode = "adopt"\npercent = 0'))
        try:
            with older_system(theirs, LEADS):
                await served.start()
                await add_numbers(served)

                async def they_call() -> bool:
                    return len(await world.others()) >= 30

                await world.until(they_call, "the older system calls", served)
                assert world.ours() == Counter()
                for percent, calls in ((30, 15), (100, 60)):
                    await choose(served, "adopt", percent)
                    before = len(world.ours())

                    async def we_call(least: int = before + calls) -> bool:
                        return len(world.ours()) >= least

                    await world.until(we_call, f"called at {percent} %", served)
                    # With calls on, rows under way, and half of a batch perhaps.
                    await served.kill()
                    chosen = (await served.ask("GET", "/calls/migration")).json()
                    assert (chosen["mode"], chosen["percent"]) == ("adopt", percent)
                await choose(served, "adopt", 0)
                await REAL.pause(0.5)
                await served.kill()

                async def all_done() -> bool:
                    done = await world.count("state = 'closed'")
                    return done == LEADS == await world.count("true")

                await world.until(all_done, "all are done", served)
                assert await world.count("handled_by = 'headway' AND state <> 'closed'") == 0
        finally:
            served.stop()
        ours, others = world.ours(), await world.others()
        assert set(ours) & set(others) == set()
        assert ours + others == Counter(dict.fromkeys({*ours, *others}, 1))
        assert len(ours) + len(others) == LEADS
        assert len(ours) >= 75
        assert len(others) >= 30
        by_owner = dict(await world.rows("SELECT handled_by, count(*) FROM their_leads GROUP BY 1"))
        assert by_owner == {"headway": len(ours), "legacy": len(others)}
        assert carrier.world.ledger.twice() == {}
