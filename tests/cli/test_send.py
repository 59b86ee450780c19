from __future__ import annotations

from pathlib import Path

import pytest

from headway.runtime.timing import REAL
from tests.cli.conftest import Headway

APP = """
from __future__ import annotations
import headway as hw

app = hw.App()
line = hw.Slots("line", 1)

@app.job(lane="calls", gates=[line], priority=7)
async def call(job: hw.Job, phone: str, tries: int = 3):
    pass
"""


@pytest.fixture(autouse=True)
def calls(folder: Path) -> None:
    folder.joinpath("send_calls.py").write_text(APP)


def test_job_without_an_app_is_plain(headway: Headway):
    ran = headway("send", "noop", "a=1", "b=x", "--due", "20m", "--lane", "l", "--priority", "3",
                  "--tenant", "t", "--subject", "s", "--key", "k", "--expires", "1h")  # fmt: skip
    assert ran.code == 0
    job = headway("job", ran.out.strip(), "--json").document
    assert job["args"] == {"a": 1, "b": "x"}
    found = {name: job[name] for name in ("kind", "lane", "priority", "tenant", "subject", "key")}
    assert found == {
        "kind": "noop", "lane": "l", "priority": 3, "tenant": "t", "subject": "s", "key": "k",
    }  # fmt: skip
    assert job["state"] == "scheduled"
    assert 0 < job["due_at"] - job["created_at"] <= 1_200_000
    assert job["expires_at"] == job["due_at"] + 3_600_000
    assert job["gates"] == []


def test_expiry_of_a_kinds_job_counts_from_the_stores_time(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(type(REAL), "wall_at", lambda _: 0)
    ran = headway("send", "call", "phone=+15550100", "--app", "send_calls.py", "--expires", "1h")
    job = headway("job", ran.out.strip(), "--json").document
    assert job["state"] == "waiting"
    assert 0 <= job["created_at"] + 3_600_000 - job["expires_at"] < 600_000


def test_job_with_an_app_follows_its_kind(headway: Headway):
    when = ("--due", "2099-01-01T00:00Z", "--expires", "1h")
    ran = headway("send", "call", "phone=+15550100", "--app", "send_calls.py", *when)
    job = headway("job", ran.out.strip(), "--json").document
    assert (job["lane"], job["priority"]) == ("calls", 7)
    assert [gate["name"] for gate in job["gates"]] == ["line"]
    assert job["args"]["phone"] == "+15550100"
    assert job["expires_at"] == job["due_at"] + 3_600_000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["call", "phone=x", "tries=many"], "phone='\"0155\"'"),
        (["call"], "the argument 'phone' is missing"),
        (["call", "fone=x", "phone=y"], "there is no argument 'fone' (did you mean phone?)"),
        (["call", "phone=x", "lane=y"], "pass it as --lane"),
        (["cal", "phone=x"], "no kind 'cal' (did you mean call?)"),
        (["call", "phone"], "is not a name=value"),
        (["call", "phone=x", "phone=y"], "'phone' is passed twice"),
        (["call", "phone=x", "--due", "2026-12-01T10:00"], "--due"),
        (["call", "phone=x", "--expires", "never"], "never"),
        (["call", "phone=x", "--priority", "-1"], "--priority"),
        (["call", "phone=x", "--key", "k", "--count", "2"], "--key creates one job"),
        (["call", "phone=x", "--lane", ""], "lane is empty"),
    ],
)
def test_refusal_by_the_kind_is_one_line_and_nothing_is_sent(
    headway: Headway, line: list[str], said: str
):
    headway("migrate")
    ran = headway("send", *line, "--app", "send_calls.py")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert headway("jobs", "--json").document["jobs"] == []


def test_key_creates_one_job(headway: Headway):
    first = headway("send", "noop", "a=1", "--key", "k", "--json").document
    again = headway("send", "noop", "a=1", "--key", "k", "--json").document
    assert first["created"] == 1
    assert again == {"jobs": [{"id": first["jobs"][0]["id"], "created": False}], "created": 0}
    other = headway("send", "noop", "a=2", "--key", "k")
    assert other.code == 2
    assert other.err.startswith("headway: ")


def test_many_jobs_are_sent(headway: Headway):
    assert headway("send", "noop", "--count", "2500").out == "2500 jobs sent\n"
    document = headway("send", "noop", "--count", "1500", "--json").document
    assert document["created"] == 1500
    assert len(document["jobs"]) == 1000
    assert headway("lanes", "--json").document["lanes"][0]["counts"] == {"waiting": 4000}


def test_too_large_arguments_are_refused(headway: Headway):
    headway("migrate")
    ran = headway("send", "noop", "x=" + "y" * 1_000_001)
    assert ran.code == 2
    assert "1000009 bytes" in ran.err


def test_text_parameter_keeps_text_that_looks_like_json(headway: Headway, folder: Path):
    folder.joinpath("send_texts.py").write_text(
        """
from __future__ import annotations
from typing import Annotated, Literal
import headway as hw

app = hw.App()

@app.job()
async def greet(name: str, code: str | None, size: Literal["1", "2"], n: int, either: str | int):
    pass
"""
    )
    named = {"name": "1", "code": "true", "size": "2", "n": "3", "either": "4"}
    words = [f"{name}={value}" for name, value in named.items()]
    ran = headway("send", "greet", *words, "--app", "send_texts.py")
    assert ran.code == 0, ran.err
    job = headway("job", ran.out.strip(), "--json").document
    assert job["args"] == {"name": "1", "code": "true", "size": "2", "n": 3, "either": 4}
    words = ['name="0155"', "code=null", "size=1", "n=x", "either=1"]
    ran = headway("send", "greet", *words, "--app", "send_texts.py")
    assert ran.code != 0
    assert "'n'" in ran.err
    ran = headway("send", "greet", *words[:3], "n=1", "either=[1]", "--app", "send_texts.py")
    job = headway("job", ran.out.strip(), "--json").document
    assert job["args"] == {"name": "0155", "code": None, "size": "1", "n": 1, "either": "[1]"}
