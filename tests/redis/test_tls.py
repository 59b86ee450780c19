from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headway.contract.views import JobsQuery
from headway.core.errors import StoreUnavailable
from headway.stores.redis.store import RedisStore
from tests.redis.admin import new_job, new_url, opened
from tests.servers.certificates import self_signed
from tests.servers.redis import GivenRedis, RedisServer

LIMIT = 120


class TlsEnd:
    """Terminates TLS for a server without TLS; a context manager."""

    def __init__(self, target: tuple[str, int], certificate: Path, key: Path) -> None:
        self._target = target
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate, key)
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._main, name="headway-tls-end", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def __enter__(self) -> TlsEnd:
        self._thread.start()
        assert self._up.wait(LIMIT)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(LIMIT)

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._done = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._up.set()
        await self._done.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replies, server = await asyncio.open_connection(*self._target)
        ways = (self._carry(reader, server), self._carry(replies, writer))
        self._tasks |= {asyncio.ensure_future(way) for way in ways}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            return
        finally:
            writer.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def end(redis_server: RedisServer | GivenRedis, certificate: tuple[Path, Path]) -> Iterator[TlsEnd]:
    target = urlsplit(redis_server.url)
    with TlsEnd((target.hostname or "", target.port or 6379), *certificate) as running:
        yield running


def _enqueue(store: RedisStore) -> None:
    with pytest.raises(StopIteration) as driven:
        store.enqueue([new_job()]).send(None)
    assert driven.value.value[0].created


async def test_store_is_reached_through_tls_with_and_without_a_loop(
    end: TlsEnd, certificate: tuple[Path, Path]
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


def test_untrusted_certificate_is_refused(end: TlsEnd) -> None:
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        opened(f"rediss://localhost:{end.port}?patience_ms=50&timeout_ms=60000")


def test_certificate_of_another_host_is_refused(
    end: TlsEnd, certificate: tuple[Path, Path]
) -> None:
    with pytest.raises(StoreUnavailable, match=r"(?i)mismatch|not valid for"):
        opened(
            f"rediss://127.0.0.1:{end.port}?patience_ms=50&timeout_ms=60000&tls_ca={certificate[0]}"
        )
