from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.cli.commands.doctor import check_place
from headway.cli.doctor import Finding, Health
from headway.cli.doctor.redis_server import check_redis
from tests.redis.admin import admin, new_url
from tests.servers.fixtures import made
from tests.servers.redis import RedisServer


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server whose settings each test changes and then restores."""
    with made(lambda: RedisServer({"appendonly": "yes", "appendfsync": "always"})) as running:
        yield running


def found(url: str, subject: str) -> Finding:
    return next(one for one in check_redis(url) if one.subject == subject)


def test_well_configured_server_passes(server: RedisServer) -> None:
    findings = check_place(new_url(server.url))
    assert {one.health for one in findings} == {Health.OK}
    assert "before it is acknowledged" in found(server.url, "durability").found


def test_evicting_server_is_a_problem_that_keeps_the_store_from_opening(
    server: RedisServer,
) -> None:
    with admin(server.url) as other:
        other.config_set("maxmemory-policy", "volatile-ttl")
        problems = [one for one in check_redis(server.url) if one.health is Health.PROBLEM]
        other.config_set("maxmemory-policy", "noeviction")
    assert [one.subject for one in problems] == ["server"]
    assert "noeviction" in problems[0].hint


@pytest.mark.parametrize(
    ("fsync", "health", "said"),
    [("everysec", Health.OK, "last second"), ("no", Health.WARNING, "half minute")],
)
def test_possible_loss_by_a_crash_is_reported(
    server: RedisServer, fsync: str, health: Health, said: str
) -> None:
    with admin(server.url) as other:
        other.config_set("appendfsync", fsync)
        told = found(server.url, "durability")
        other.config_set("appendfsync", "always")
    assert told.health is health
    assert said in told.found


def test_server_without_an_append_only_file_is_a_warning(server: RedisServer) -> None:
    with admin(server.url) as other:
        other.config_set("appendonly", "no")
        told = found(server.url, "durability")
        other.config_set("appendonly", "yes")
        # The child that rewrites the file would outlive the server by five seconds.
        while other.info("persistence")["aof_rewrite_in_progress"]:
            pass
    assert told.health is Health.WARNING
    assert "loses" in told.found


def test_nearly_full_memory_is_a_warning(server: RedisServer) -> None:
    with admin(server.url) as other:
        other.config_set("maxmemory", 1_000)
        told = found(server.url, "memory")
        other.config_set("maxmemory", 0)
    assert told.health is Health.WARNING


def test_server_that_refuses_writes_for_lack_of_replicas_is_a_problem(server: RedisServer) -> None:
    with admin(server.url) as other:
        other.config_set("min-replicas-to-write", 1)
        told = found(server.url, "replicas")
        other.config_set("min-replicas-to-write", 0)
    assert told.health is Health.PROBLEM
    assert told.found == "writes are refused: 0 of 1 keep up"


def test_error_names_the_rights_that_a_user_needs(server: RedisServer) -> None:
    with admin(server.url) as other:
        other.execute_command("ACL", "SETUSER", "guest", "on", ">word", "+info", "+time", "+ping")
    told = found(server.url.replace("//", "//guest:word@"), "rights")
    assert told.health is Health.PROBLEM
    assert "NOPERM" in told.found.upper()
    assert "+@all" in told.hint


def test_unreachable_server_is_a_problem() -> None:
    findings = check_redis("redis://127.0.0.1:1?patience_ms=50")
    assert [(one.subject, one.health) for one in findings] == [("server", Health.PROBLEM)]
