"""The command on PostgreSQL and Redis: as on a file, and clear errors for server faults."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
import redis

from headway.stores.postgres.options import parse_url
from tests.cli.conftest import Headway
from tests.postgres.roles import as_role, fresh_role
from tests.servers.process import free_port
from tests.servers.stores import ON_SERVERS, NewUrl

APP = """
import headway as hw

app = hw.App()


@app.job(gates=[hw.Slots("lines", 2)], key="{phone}")
async def call(phone: str) -> str:
    return phone


@app.job()
async def bad() -> None:
    raise hw.Dead("no such number")


@app.importer("leads")
def leads(row):
    yield call.make(phone=row["phone"])


@app.job()
async def report(phone: str) -> None: ...


app.timetable("nightly", report, schedule="at 03:00", args={"phone": "9"})
"""

DAY = (
    "migrate",
    "send call phone=a5 --app app.py",
    "send call phone=a5 --app app.py",
    "send bad --app app.py --subject x",
    "send noop --due 20m --lane late --key later",
    "import leads.jsonl --app app.py --as leads",
    "lanes",
    "worker app.py --drain=due",
    "jobs",
    "job KEY",
    "why KEY",
    "retry --kind bad --yes --reason again",
    "pause lane:main --reason lunch",
    "why KEY",
    "gates",
    "resume lane:main",
    "gates set lines --capacity 3",
    "gates close lines --until 20m",
    "gates open lines",
    "gates reset lines",
    "cancel --subject x --yes",
    "timetable",
    "timetable next nightly 2",
    "timetable disable nightly",
    "audit",
    "jobs --state cancelled",
    "export --no-trail --state scheduled",
)
"""Commands of a typical day. KEY is replaced by the id of the job that is due later."""

_NUMBERS = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b[0-9a-f]{16}\b|[0-9]{13}|[0-9][-0-9:.+TZ]{7,}"
)
_SPANS = re.compile(r"\b[0-9]+(?:d|h|m|ms|s)\b")


def plain(text: str) -> str:
    """Return the text without what differs each time: ids, instants and durations."""
    kept = [line for line in text.splitlines() if '"logger"' not in line]
    return re.sub(r"\s+|-{3,}", " ", _SPANS.sub("T", _NUMBERS.sub("N", "\n".join(kept))))


def day(headway: Headway, url: str) -> list[tuple[str, int, str, str]]:
    """Return the output of each command of a day."""
    said: list[tuple[str, int, str, str]] = []
    for line in DAY:
        words = line.split()
        if "KEY" in words:
            (job,) = headway("jobs", "--store", url, "--key", "later", "--json").document["jobs"]
            words[words.index("KEY")] = job["id"]
        ran = headway(*words, "--store", url)
        said.append((line, ran.code, plain(ran.out), plain(ran.err)))
    return said


@pytest.fixture
def new_url(new_url: NewUrl) -> NewUrl:
    """As elsewhere, but without a schema: these tests create and change schemas themselves."""
    return lambda kind: new_url(kind, made=False)


@pytest.fixture
def app(folder: Path) -> None:
    folder.joinpath("app.py").write_text(APP)
    folder.joinpath("leads.jsonl").write_text('{"phone": "b1"}\n{"x": 1}\n')


@pytest.mark.parametrize("kind", ON_SERVERS)
def test_every_command_prints_the_same_on_a_server_and_a_file(
    headway: Headway, new_url: NewUrl, app: None, kind: str
) -> None:
    here, there = day(headway, new_url("sqlite")), day(headway, new_url(kind))
    assert [one for one in here if one[1] not in {0, 1}] == []
    # The reply of the first command describes the schema, which differs by kind.
    assert here[1:] == there[1:]
    assert there[0][1] == 0
    assert there[0][2].startswith("the store is ready: ")


@pytest.mark.parametrize("kind", ON_SERVERS)
def test_doctor_checks_the_server_and_then_the_store(
    headway: Headway, new_url: NewUrl, kind: str
) -> None:
    url = new_url(kind)
    assert headway("migrate", "--store", url).code == 0
    findings = headway("doctor", "--store", url, "--json").document["findings"]
    subjects = [one["subject"] for one in findings]
    assert subjects[0] == "server"
    assert {"durability", "server clock", "rights", "store", "permits"} <= set(subjects)
    assert not {"file", "disk"} & set(subjects)


@pytest.mark.parametrize("kind", ON_SERVERS)
def test_repeated_migration_succeeds_and_is_reported_as_json(
    headway: Headway, new_url: NewUrl, kind: str
) -> None:
    url = new_url(kind)
    first = headway("migrate", "--store", url, "--json").document
    again = headway("migrate", "--store", url, "--json").document
    assert again["before"] == again["now"] == first["now"]


def test_check_creates_no_schema_and_names_the_command_that_does(
    headway: Headway, new_url: NewUrl
) -> None:
    url = new_url("postgresql")
    asked = [f"{words} --store {url}" for words in ("jobs", "lanes", "audit", "pause all")]
    for line in (*asked, f"copy {url} {new_url('redis')}"):
        ran = headway(*line.split())
        assert (ran.code, ran.out) == (4, ""), (line, ran.err)
        assert "contains no store yet" in ran.err
        assert "headway migrate" in ran.err


@pytest.mark.parametrize("line", ["send noop", "worker APP --drain"])
def test_working_command_creates_the_schema_unless_the_url_forbids_it(
    headway: Headway, new_url: NewUrl, empty_app: str, line: str
) -> None:
    url, line = new_url("postgresql"), line.replace("APP", empty_app)
    refused = headway(*line.split(), "--store", f"{url}&migrate=off")
    assert refused.code == 4
    assert "headway migrate" in refused.err
    assert headway("jobs", "--store", url).code == 4
    assert headway(*line.split(), "--store", url).code == 0
    assert headway("jobs", "--store", url).code == 0


def test_newer_schema_is_refused_and_says_what_to_do(
    headway: Headway, new_url: NewUrl, empty_app: str
) -> None:
    url = new_url("postgresql")
    headway("migrate", "--store", url)
    options = parse_url(url)
    with psycopg.connect(options.conninfo, autocommit=True) as db:
        # The schema's number, and the oldest program that supports it.
        db.execute(
            f'UPDATE "{options.namespace}".number SET n = 9999 WHERE key IN (-9, -11)'.encode()  # noqa: S608
        )
    for line in ("migrate", "jobs", "send noop", "worker APP --drain"):
        ran = headway(*line.replace("APP", empty_app).split(), "--store", url)
        assert (ran.code, ran.out) == (4, ""), line
        assert "9999" in ran.err
        assert "upgrade Headway" in ran.err


def test_another_format_is_refused_and_says_what_to_do(
    headway: Headway, new_url: NewUrl, empty_app: str
) -> None:
    url = new_url("redis")
    headway("migrate", "--store", url)
    place, _, namespace = url.partition("?namespace=")
    with redis.Redis.from_url(place) as client:
        client.hset(f"{{headway:{namespace}}}:facts", "format", "9")
    for line in ("migrate", "jobs", "send noop", "worker APP --drain"):
        ran = headway(*line.replace("APP", empty_app).split(), "--store", url)
        assert (ran.code, ran.out) == (4, ""), line
        assert "format 9" in ran.err
        assert "run the version that created it" in ran.err


@pytest.mark.parametrize("scheme", ON_SERVERS)
@pytest.mark.parametrize("line", ["jobs", "migrate", "send noop", "worker APP --drain"])
def test_unreachable_server_is_named_without_its_password(
    headway: Headway, empty_app: str, scheme: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = line.replace("APP", empty_app)
    monkeypatch.setenv("HEADWAY_STORE_WAIT", "0s")
    place = f"127.0.0.1:{free_port()}"
    mild = "?patience_ms=50" if scheme == "redis" else "/shop?patience_ms=50"
    url = f"{scheme}://someone:verysecret@{place}{mild}"
    ran = headway(*line.split(), "--store", url)
    assert (ran.code, ran.out) == (4, "")
    assert place in ran.err
    assert "Connection refused" in ran.err
    assert "verysecret" not in ran.err
    told = headway("doctor", "--store", url)
    assert told.code == 1
    assert told.out.startswith("problem  server: ")
    assert "verysecret" not in told.out


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("postgresql", "&namespace=pg_mine", "none of PostgreSQL's own"),
        ("postgresql", "&namespace=a b", "the namespace is 'a b'"),
        ("postgresql", "&migrat=off", "the unknown option 'migrat'"),
        ("redis", "&namespace=a/b", "the namespace 'a/b' is unusable"),
        ("redis", "&pool=3", "the unknown option 'pool'"),
    ],
)
def test_unusable_url_is_a_caller_error(
    headway: Headway, new_url: NewUrl, kind: str, more: str, said: str
) -> None:
    ran = headway("jobs", "--store", new_url(kind) + more)
    assert ran.code == 2
    assert said in ran.err


def test_url_of_another_library_is_refused_without_its_password(headway: Headway) -> None:
    ran = headway("jobs", "--store", "postgresql+psycopg://me:verysecret@db/shop")
    assert ran.code == 2
    assert "'postgresql+psycopg://…' is not the URL of a store" in ran.err
    assert "verysecret" not in ran.err


def test_missing_database_says_to_create_it(headway: Headway, new_url: NewUrl) -> None:
    ran = headway("migrate", "--store", new_url("postgresql").replace("?", "x?", 1))
    assert ran.code == 4
    assert "CREATE DATABASE" in ran.err


def test_error_names_the_rights_that_a_role_needs(headway: Headway, new_url: NewUrl) -> None:
    url = new_url("postgresql")
    headway("migrate", "--store", url)
    with fresh_role(parse_url(url).conninfo) as role:
        ran = headway("jobs", "--store", as_role(url, role))
        assert ran.code == 4
        assert "GRANT USAGE ON SCHEMA" in ran.err
        assert f'"{role}"' in ran.err
        assert "p4ss" not in ran.err


def test_server_without_password_or_database_is_not_a_bug(
    headway: Headway, new_url: NewUrl
) -> None:
    url = new_url("redis")
    given = headway("jobs", "--store", url.replace("redis://", "redis://:wrong@"))
    assert given.code == 4
    assert "wrong" not in given.err.replace("WRONGPASS", "")
    far = headway("jobs", "--store", url.replace("/0?", "/99999?"))
    assert far.code == 4
    assert "no database with that number" in far.err
