"""Small runs of the rigs; `python -m tests.torture` runs them at full size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.brokers.cassandra import CassandraServer
from tests.servers.brokers.kafka import KafkaServer
from tests.servers.fixtures import made, missing
from tests.torture.site import KINDS

LIMIT_S = 900


def torture(
    folder: Path, *words: str, limit_s: float = LIMIT_S
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.torture", "--dir", str(folder), *words],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_small_rig_keeps_its_promises(tmp_path: Path) -> None:
    passes(tmp_path, "races", "sqlite", "--jobs", "400")


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(
    ("rig", "size"),
    [
        ("races", ("--jobs", "2000")),
        ("kills", ("--kills", "10")),
        ("http", ("--jobs", "1000", "--kills", "3")),
    ],
)
@pytest.mark.parametrize("store", KINDS)
def test_tortured_store_keeps_its_promises(
    tmp_path: Path, store: str, rig: str, size: tuple[str, str]
) -> None:
    passes(tmp_path, rig, store, *size)


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("store", KINDS)
def test_notifications_are_sent_once_though_engines_die_and_freeze(
    tmp_path: Path, store: str
) -> None:
    passes(tmp_path, "notifications", store, "--quick")


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("store", ["postgres", "redis"])
def test_work_continues_after_each_fault_and_nothing_is_lost(tmp_path: Path, store: str) -> None:
    passes(tmp_path, "faults", store, "--for", "5")


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("store", KINDS)
def test_history_with_every_event_breaks_no_promise(tmp_path: Path, store: str) -> None:
    passes(tmp_path, "history", store, "--for", "10")


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("store", KINDS)
def test_no_repository_has_two_sessions_and_no_process_remains(tmp_path: Path, store: str) -> None:
    passes(tmp_path, "automations", store, "--quick")


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_messages_pass_through_the_brokers_though_every_process_is_killed(tmp_path: Path) -> None:
    for server in (KafkaServer, CassandraServer):
        made(server).close()
    passes(tmp_path, "brokers", "sqlite", "--quick", limit_s=2 * LIMIT_S)


def passes(folder: Path, rig: str, store: str, *size: str, limit_s: float = LIMIT_S) -> None:
    done = torture(folder, rig, "--store", store, *size, limit_s=limit_s)
    if "not run" in done.stdout:
        missing(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{rig} on {store}: no violation" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        ("lose", "lost"),
        ("call early", "called early"),
        ("one line", "capacity"),
        ("leave early", "double start"),
    ],
)
def test_fault_planted_in_a_rig_is_found(tmp_path: Path, plant: str, rule: str) -> None:
    done = torture(tmp_path, "races", "--store", "sqlite", "--jobs", "500", "--plant", plant)
    assert done.returncode == 1
    assert f"VIOLATION {rule}: " in done.stdout
