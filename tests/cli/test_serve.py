"""`headway serve`, as a process: where it may listen, what it logs, how it exits."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from headway.app import App
from headway.cli.http_serving import AddressOptions, HttpServing
from headway.cli.settings import load_settings
from headway.server.listener import ListenAddress
from tests.cli.conftest import Headway
from tests.cli.test_worker import until
from tests.servers.certificates import self_signed

LIMIT_S = 120
EVERYWHERE = "0.0.0.0"  # noqa: S104  (it is refused)


@contextmanager
def serving(
    *line: str, before: Callable[[], None] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """Start a server process; yield it, its address, and what it logged until it listened."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "serve", "--port=0", *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HEADWAY_LOG_FORMAT": "json"},
        preexec_fn=before,  # noqa: PLW1509  (this process has one thread)
    )
    try:
        assert process.stderr is not None
        logged: list[str] = []
        url = ""
        for text in process.stderr:
            logged.append(text)
            event = json.loads(text)
            if event["event"] == "server listens":
                url = event["url"]
                break
        assert url, "".join(logged)
        yield process, url, logged
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_server_without_tokens_is_open_on_loopback_and_warns():
    with serving() as (_, url, logged):
        assert url.startswith("http://127.0.0.1:")
        assert any('"level": "warning"' in one and "server without tokens" in one for one in logged)
        assert httpx.get(f"{url}/openapi.json", timeout=LIMIT_S).status_code == 200


def test_server_can_have_as_many_connections_as_the_system_allows():
    few, most = 256, min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65_536)

    def shell_of_old() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))

    with serving(before=shell_of_old) as (process, _, _):
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (most, most)


def test_stop_is_graceful_and_sets_the_exit_code():
    with serving("--json") as (process, url, _):
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, json.loads(out)) == (0, {"settled": 0})
        with pytest.raises(httpx.ConnectError):
            httpx.get(url, timeout=LIMIT_S)


def test_server_beyond_loopback_refuses_to_start_without_a_token(headway: Headway):
    ran = headway("serve", "--host", EVERYWHERE, "--port", "0")
    assert ran.code == 2
    assert "the store has no token" in ran.err
    assert "headway token create" in ran.err


def test_server_behind_a_proxy_refuses_to_start_without_a_token(headway: Headway):
    ran = headway("serve", "--trust-proxy", "127.0.0.1", "--port", "0")
    assert ran.code == 2
    assert "the store has no token" in ran.err
    assert "headway token create" in ran.err


def test_server_beyond_loopback_refuses_to_send_tokens_unencrypted(headway: Headway):
    assert headway("migrate").code == 0
    assert headway("token", "create", "ops", "--role", "admin").code == 0
    ran = headway("serve", "--host", EVERYWHERE, "--port", "0")
    assert ran.code == 2
    assert "unencrypted" in ran.err
    assert "--plain-http" in ran.err


def test_server_on_loopback_with_a_token_is_closed(headway: Headway):
    assert headway("migrate").code == 0
    made = headway("token", "create", "ops", "--role", "admin", "--json").document
    with serving() as (_, url, logged):
        assert not any("OPEN" in one for one in logged)
        refused = httpx.get(f"{url}/v1/me", timeout=LIMIT_S)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        told = {"authorization": f"Bearer {made['token']}"}
        assert httpx.get(f"{url}/v1/me", headers=told, timeout=LIMIT_S).status_code == 200


def test_proxy_on_loopback_can_forward_any_host(headway: Headway):
    """A page of another site may not reach an open server through a name of its own."""
    assert headway("migrate").code == 0
    made = headway("token", "create", "ops", "--role", "admin", "--json").document
    told = {"authorization": f"Bearer {made['token']}", "host": "jobs.example"}
    for options, status in ((["--trust-proxy=127.0.0.1"], 200), ([], 403)):
        with serving(*options) as (_, url, _):
            assert httpx.get(f"{url}/v1/me", headers=told, timeout=LIMIT_S).status_code == status


def test_first_token_closes_an_open_server(headway: Headway):
    with serving() as (_, url, _):
        assert httpx.get(f"{url}/v1/me", timeout=LIMIT_S).status_code == 200
        assert headway("token", "create", "ops", "--role", "viewer").code == 0

        def closed() -> bool:
            return httpx.get(f"{url}/v1/me", timeout=LIMIT_S).status_code == 401

        until(closed)


@pytest.mark.slow
def test_server_uses_the_given_tls_certificate(headway: Headway, folder: Path):
    certificate, key = self_signed(folder)
    line = (f"--tls-cert={certificate}", f"--tls-key={key}")
    with serving(*line) as (_, url, _):
        assert url.startswith("https://")
        port = url.rsplit(":", 1)[1]
        trusting = ssl.create_default_context(cafile=certificate)
        reply = httpx.get(
            f"https://localhost:{port}/openapi.json", verify=trusting, timeout=LIMIT_S
        )
        assert reply.status_code == 200


def test_half_of_a_certificate_is_refused(headway: Headway, folder: Path):
    certificate, _ = self_signed(folder)
    ran = headway("serve", f"--tls-cert={certificate}")
    assert ran.code == 2
    assert "--tls-key" in ran.err


def test_port_in_use_is_reported(headway: Headway):
    with serving() as (_, url, _):
        ran = headway("serve", "--port", url.rsplit(":", 1)[1])
    assert ran.code == 2
    assert "cannot listen" in ran.err


def test_unknown_system_is_refused_with_the_existing_ones(headway: Headway):
    ran = headway("serve", "--system", "lane")
    assert ran.code == 2
    assert "did you mean lanes?" in ran.err


def test_name_as_a_trusted_proxy_is_refused(headway: Headway):
    ran = headway("serve", "--trust-proxy", "proxy.example", "--port", "0")
    assert ran.code == 2
    assert "'proxy.example' is not an address" in ran.err


def test_options_for_proxies_and_certificates_reach_the_listener(folder: Path):
    certificate, key = folder / "server.pem", folder / "server.key"
    options = AddressOptions(
        host="10.0.0.7",
        port=8443,
        tls_cert=certificate,
        tls_key=key,
        trust_proxy=["127.0.0.1", "10.0.0.0/8"],
    )
    assert options.address(has_tokens=True) == ListenAddress(
        host="10.0.0.7",
        port=8443,
        certificate=certificate,
        key=key,
        trusted_proxies=("127.0.0.1", "10.0.0.0/8"),
    )


def test_worker_options_are_refused_without_a_worker(headway: Headway):
    ran = headway("serve", "--lanes", "mail", "--port", "0")
    assert ran.code == 2
    assert "--work" in ran.err


async def test_imported_objects_are_frozen_for_the_garbage_collector():
    # The test suite also freezes the objects that it collected.
    gc.unfreeze()
    serving = HttpServing(
        app=App("memory://"), address=AddressOptions(port=0), settings=load_settings()
    )
    async with serving.app as app, serving._ready(app.store) as listener:
        running = asyncio.create_task(listener.run())
        await listener.answers()
        assert len(gc.get_objects()) < gc.get_freeze_count()
        listener.stop()
        await running
    assert gc.get_freeze_count() == 0
    gc.freeze()
