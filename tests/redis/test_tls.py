from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.contract.views import JobsQuery
from headway.core.errors import StoreUnavailable
from headway.stores.redis.store import RedisStore
from tests.redis.admin import new_job, new_url, opened
from tests.servers.certificates import self_signed
from tests.servers.proxy import Proxy
from tests.servers.redis import GivenRedis, RedisServer


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def end(redis_server: RedisServer | GivenRedis, certificate: tuple[Path, Path]) -> Iterator[Proxy]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    with Proxy(redis_server.url, tls=context) as running:
        yield running


def _enqueue(store: RedisStore) -> None:
    with pytest.raises(StopIteration) as driven:
        store.enqueue([new_job()]).send(None)
    assert driven.value.value[0].created


async def test_store_is_reached_through_tls_with_and_without_a_loop(
    end: Proxy, certificate: tuple[Path, Path]
) -> None:
    store = opened(new_url(f"rediss://localhost:{end.port}/0") + f"&tls_ca={certificate[0]}")
    await store.enqueue([new_job()])
    # More than one TLS record, in both directions.
    await store.enqueue([new_job(args=b"x" * 200_000) for _ in range(20)])
    await asyncio.gather(*(store.enqueue([new_job(args=b"y" * 9_000)]) for _ in range(100)))
    assert len((await store.read(JobsQuery(limit=1000))).rows) == 121
    # Without an event loop, in a separate thread.
    await asyncio.to_thread(_enqueue, store)
    await store.close()


def test_untrusted_certificate_is_refused(end: Proxy) -> None:
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        opened(f"rediss://localhost:{end.port}?patience_ms=50&timeout_ms=60000")


def test_certificate_of_another_host_is_refused(end: Proxy, certificate: tuple[Path, Path]) -> None:
    with pytest.raises(StoreUnavailable, match=r"(?i)mismatch|not valid for"):
        opened(
            f"rediss://127.0.0.1:{end.port}?patience_ms=50&timeout_ms=60000&tls_ca={certificate[0]}"
        )
