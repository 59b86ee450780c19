"""A store that is lost or unreachable while the table of leads is authoritative."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import headway as hw
from headway.contract.definitions import Role
from headway.contract.extensions import Repairable
from headway.contract.views import GatesQuery
from headway.core.errors import StoreError
from headway.core.gates.slots import Slots
from headway.core.state import State
from headway.runtime.timing import REAL
from headway.systems.calls.source_table import read_source_table
from headway.systems.directory.database import Directory
from headway.systems.parts import Parts
from headway.systems.telephony.providers import read_telephony
from headway.testing.clock import FakeClock
from headway.testing.jobs import JobFactory, use_of
from tests.servers.fixtures import made
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database
from tests.servers.redis import RedisServer
from tests.systems.calls.source_table.databases import run
from tests.systems.calls.source_table.site import NUMBERS, Site, calling, lead
from tests.systems.telephony.carrier_rig import carrying
from tests.torture.site import ALWAYS

CHANNELS = sum(NUMBERS.values())
LEADS = 12


@pytest.fixture
def lost_server() -> Iterator[RedisServer]:
    """Run a separate Redis, which tests may flush or stop."""
    with made(RedisServer) as server:
        yield server


@pytest.fixture
def directory_url(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    with fresh_database(fast_postgres_server.url) as url:
        yield url


async def hang_up(site: Site, sid: str) -> None:
    await site.carrier.network.hang_up(sid)


async def statuses(url: str) -> Counter[str]:
    rows = await run(url, "SELECT status, outcome FROM calls_leads")
    return Counter(str(row["outcome"] or row["status"]) for row in rows)


async def busy_with_the_third(site: Site) -> None:
    """Wait until all lines are busy again, after two calls have ended."""

    async def busy() -> bool:
        return len(site.live()) == CHANNELS

    await site.until(busy, "all lines busy")
    for sid in list(site.live())[:2]:
        await hang_up(site, sid)
        await site.until(busy, "the next on the line")


async def is_as_the_world(site: Site) -> bool:
    """Return whether the store is healthy, and awaits exactly the ongoing calls with lines."""
    assert isinstance(site.app.store, Repairable)
    try:
        if await site.app.store.suspicion() is not None:
            return False
        awaiting = await site.jobs(State.AWAITING)
    except StoreError:
        # The store has just been restarted.
        return False
    if sorted(job.subject for job in awaiting) != sorted(site.live().values()):
        return False
    (pool,) = (await site.app.store.read(GatesQuery(names=("calls.numbers",)))).rows
    return {one.name.rpartition("/")[2]: one.used for one in pool.members} == NUMBERS


async def end_all(site: Site, directory_url: str) -> None:
    """End all calls, one after another; each lead was called once."""

    async def over() -> bool:
        for sid in site.live():
            await hang_up(site, sid)
        return (await statuses(directory_url)) == {"COMPLETED": LEADS}

    await site.until(over, "all called, and told to the table")
    assert Counter(site.called()) == Counter(lead(n)["phone"] for n in range(LEADS))
    assert site.carrier.network.ledger.twice() == {}
    assert all(most <= NUMBERS[n] for n, most in site.carrier.network.ledger.peaks().items())


@pytest.mark.slow
async def test_redis_that_lost_everything_during_calls_calls_each_lead_once(
    lost_server: RedisServer, directory_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = {"own": True, "every": "1s", "rate": 1000}
    async with (
        carrying(speed=1, ring="1ms", talk="1h", numbers=list(NUMBERS)) as carrier,
        calling(carrier, lost_server.url, directory_url, table=table) as site,
    ):
        reply = await site.post(*(lead(n) for n in range(LEADS)))
        assert reply.is_success, reply.text
        await busy_with_the_third(site)
        on_the_phone = site.live()
        with redis.Redis.from_url(lost_server.url) as server:
            server.flushall()

        async def rebuilt() -> bool:
            return await is_as_the_world(site) and len(await site.jobs()) == LEADS - 2

        await site.until(rebuilt, "rebuilt")
        assert site.live() == on_the_phone
        assert "source calls.table: UnknownGate" not in caplog.text
        await end_all(site, directory_url)


@pytest.mark.slow
async def test_redis_restored_to_an_older_state_awaits_the_current_calls(
    lost_server: RedisServer, directory_url: str
) -> None:
    table = {"own": True, "every": "1s", "rate": 1000}
    async with (
        carrying(speed=1, ring="1ms", talk="1h", numbers=list(NUMBERS)) as carrier,
        calling(
            carrier,
            lost_server.url,
            directory_url,
            table=table,
            # Calls that ended after the state was saved are looked up soon.
            call_deadline="5s",
        ) as site,
    ):
        reply = await site.post(*(lead(n) for n in range(LEADS)))
        assert reply.is_success, reply.text

        async def busy() -> bool:
            return len(site.live()) == CHANNELS and len(await site.jobs(State.AWAITING)) == CHANNELS

        await site.until(busy, "all lines busy")
        with redis.Redis.from_url(lost_server.url) as server:
            server.save()
        # Two calls end and two start that the saved state does not contain.
        await busy_with_the_third(site)
        on_the_phone = site.live()
        lost_server.kill()
        lost_server.start()
        await site.until(lambda: is_as_the_world(site), "rebuilt")
        assert site.live() == on_the_phone
        await end_all(site, directory_url)


async def test_leads_refused_by_a_lost_store_for_its_gates_follow_later() -> None:
    directory = Directory("sqlite:///:memory:")
    parts = Parts(directory=directory, telephony=read_telephony({}), timing=REAL)
    truth = read_source_table({"own": True}, None, parts)
    assert truth is not None
    lost, line = hw.App("memory://"), Slots("line", 1)
    async with lost:
        job = JobFactory(FakeClock()).make(gates=(use_of(line),))
        assert not await truth.follow(lost.store, [job])
        await lost.declare_gates(line)
        assert await truth.follow(lost.store, [job])


async def test_intake_answers_201_while_redis_is_stopped_and_calls_afterwards(
    directory_url: str,
) -> None:
    table = {"own": True, "every": "1s"}
    with made(lambda: RedisServer(ALWAYS)) as server:
        url = f"{server.url}?patience_ms=300"
        async with (
            carrying(speed=1000, ring="1ms", talk="1s", numbers=list(NUMBERS)) as carrier,
            calling(carrier, url, directory_url, table=table) as site,
        ):
            token = await site.rig.token(Role.PRODUCER, tenants=["acme"])
            first = await site.rig.call(token, "POST", "/leads", lead(0))
            assert first.status_code == 201, first.text
            server.kill()
            away = await site.rig.call(token, "POST", "/leads", lead(1, key="k1"))
            assert away.status_code == 201, away.text
            again = await site.rig.call(token, "POST", "/leads", lead(1, key="k1"))
            assert again.status_code == 200, again.text
            assert (again.status_code, again.json()["id"]) == (200, away.json()["id"])
            other = await site.rig.call(token, "POST", "/leads", lead(2, key="k1"))
            assert (other.status_code, other.json()["code"]) == (409, "key_conflict")
            nobody = await site.rig.call("hw_nobody", "POST", "/leads", lead(3))
            assert nobody.status_code == 401, nobody.text
            server.start()

            async def both_called() -> bool:
                return (await statuses(directory_url)) == {"COMPLETED": 2}

            await site.until(both_called, "both called")
            assert Counter(site.called()) == Counter([lead(0)["phone"], lead(1)["phone"]])
            shown = await site.rig.ask(token, f"/leads/{away.json()['id']}")
            assert (shown["status"], shown["outcome"]) == ("FINISHED", "COMPLETED")


@pytest.mark.slow
async def test_unreachable_table_is_503_and_nothing_is_half_written_or_dialled(
    tmp_path: Path,
) -> None:
    with made(PostgresServer) as server, fresh_database(server.url) as theirs:
        table = {"own": True, "every": "1s"}
        async with (
            carrying(speed=1000, ring="1ms", talk="1s", numbers=list(NUMBERS)) as carrier,
            calling(
                carrier,
                f"sqlite:///{tmp_path}/jobs.db",
                theirs,
                table=table,
                # Results that a webhook could not deliver meanwhile are looked up soon.
                call_deadline="3s",
            ) as site,
        ):
            assert (await site.post(lead(0))).status_code == 201
            server.kill()
            reply = await site.post(lead(1))
            assert reply.status_code == 503, reply.text
            assert reply.headers["content-type"] == "application/problem+json"
            assert len(await site.jobs()) == 1
            server.start()

            async def called() -> bool:
                return (await statuses(theirs)) == {"COMPLETED": 1}

            await site.until(called, "the one that was taken in is called")
            assert (await site.post(lead(1))).status_code == 201

            async def both() -> bool:
                return (await statuses(theirs)) == {"COMPLETED": 2}

            await site.until(both, "the other one too")
            assert Counter(site.called()) == Counter([lead(0)["phone"], lead(1)["phone"]])
