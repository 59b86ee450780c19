from __future__ import annotations

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as Away

from tests.servers.fixtures import made
from tests.servers.redis import GivenRedis, RedisServer


def test_shared_server_answers(redis_server: RedisServer | GivenRedis) -> None:
    with Redis.from_url(redis_server.url) as db:
        assert db.ping()


def test_written_data_survives_a_kill_when_every_write_is_synced() -> None:
    with made(lambda: RedisServer({"appendonly": "yes", "appendfsync": "always"})) as server:
        with Redis.from_url(server.url) as db:
            db.set("kept", 7)
        url = server.url
        server.kill()
        with Redis.from_url(url) as db, pytest.raises(Away):
            db.ping()
        server.start()
        assert server.url == url
        with Redis.from_url(url) as db, Redis.from_url(server.socket_url) as same:
            assert db.get("kept") == same.get("kept") == b"7"


def test_options_reach_the_server() -> None:
    server = made(lambda: RedisServer({"maxmemory": "64mb"}))
    with server, Redis.from_url(server.url) as db:
        assert db.config_get("maxmemory") == {"maxmemory": str(64 * 1024 * 1024)}
