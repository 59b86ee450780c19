"""`headway carrier` as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest

from headway.systems.telephony.providers import read_telephony
from tests.cli.conftest import Headway, folder, headway

__all__ = ["folder", "headway"]

LIMIT_S = 120
EVERYWHERE = "0.0.0.0"  # noqa: S104  (it is refused)


@contextmanager
def running(*line: str, lines: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the process; yield it and the first lines that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "carrier", "--port=0", *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "HEADWAY_LOG_FORMAT": "json"},
    )
    try:
        assert process.stdout is not None
        out: IO[str] = process.stdout
        yield process, "".join(out.readline() for _ in range(lines))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_printed_settings_table_works(folder: Path) -> None:
    with running(lines=4) as (process, printed):
        table = tomllib.loads(printed)["telephony"]
        assert list(read_telephony(table).voices) == ["twilio"]
        told = table["twilio"]
        reply = httpx.get(
            f"{told['base_url']}/2010-04-01/Accounts/{told['account_sid']}/Calls.json",
            auth=(told["account_sid"], told["auth_token"]),
        )
        assert reply.json()["calls"] == []
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0


@pytest.mark.slow
def test_account_is_the_same_for_the_same_seed(folder: Path) -> None:
    told: list[dict[str, str]] = []
    for seed in ("1", "1", "2"):
        with running("--json", f"--seed={seed}", lines=1) as (process, printed):
            told.append(json.loads(printed))
            process.terminate()
            assert process.wait(LIMIT_S) == 0
    accounts = [(one["account_sid"], one["auth_token"]) for one in told]
    assert accounts[0] == accounts[1] != accounts[2]


def test_current_calls_do_not_keep_it_from_exiting(folder: Path) -> None:
    with running("--json", "--answer=1", "--talk=1h", "--ring=1s", lines=1) as (process, printed):
        told = json.loads(printed)
        reply = httpx.post(
            f"{told['base_url']}/2010-04-01/Accounts/{told['account_sid']}/Calls.json",
            data={"To": "+15550001111", "From": "+15559990000", "Twiml": "<Response/>"},
            auth=(told["account_sid"], told["auth_token"]),
        )
        assert reply.status_code == 201
        process.terminate()
        assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("--host", EVERYWHERE), f"a carrier on {EVERYWHERE} would be reachable by others"),
        (("--account", "AC1"), "--account: it should be text that matches"),
        (
            ("--answer", "0.9", "--busy", "0.9"),
            "the sum of answer, busy, no_answer, failed is 1.8, not 1",
        ),
        (("--talk", "9"), "--talk: the duration '9' is not understood"),
        (("--number", "911"), "--number: it is '911', which is not a number"),
    ],
)
def test_invalid_options_are_refused_before_it_starts(
    headway: Headway, line: tuple[str, ...], said: str
) -> None:
    refused = headway("carrier", *line)
    assert refused.code == 2
    assert said in refused.err
