"""Unusable values of options: the error says what to write on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Headway


@pytest.mark.parametrize(
    "line",
    [
        ["send", "noop", "--expires=5x"],
        ["send", "noop", "--due=5x"],
        ["gates", "set", "lines", "--per=5x"],
        ["gates", "close", "lines", "--until=5x"],
        ["pause", "all", "--until=5x"],
        ["lanes", "set", "mail", "--target=5x"],
        ["lanes", "set", "mail", "--lease=5x"],
        ["token", "create", "shop", "--role=viewer", "--expires=5x"],
        ["token", "rotate", "0123456789abcdef", "--grace=5x"],
        ["worker", "app.py", "--grace=5x"],
        ["worker", "app.py", "--lease=5x"],
        ["run", "app.py", "--grace=5x"],
        ["serve", "--app=app.py", "--work", "--grace=5x"],
        ["carrier", "--ring=5x"],
    ],
)
def test_unusable_duration_is_refused_with_its_option_and_a_valid_form(
    headway: Headway, line: list[str]
):
    option = line[-1].partition("=")[0]
    assert headway("migrate").code == 0
    ran = headway(*line)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"headway: {option}: the duration '5x' is not understood")
    assert "20m" in ran.err
    assert "timedelta" not in ran.err


def test_weights_of_an_unfair_lane_are_refused_with_the_option(headway: Headway):
    assert headway("migrate").code == 0
    ran = headway("lanes", "set", "mail", "--weight", "acme=2")
    assert ran.err == "headway: --weight: the lane 'mail' is not fair (also pass --fair)\n"
    assert headway("lanes", "set", "mail", "--fair", "--weight", "acme=2").code == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--account", "x"),
        ("--auth-token", "x"),
        ("--number", "x"),
        ("--sms-url", "x"),
        ("--speed", "0"),
        ("--talk", "2m,1m"),
    ],
)
def test_carrier_names_the_unusable_option(headway: Headway, option: str, value: str):
    ran = headway("carrier", option, value)
    assert ran.code == 2
    assert ran.err.startswith(f"headway: {option}: ") or f"headway: {option} is " in ran.err


def test_import_without_an_app_requires_one(headway: Headway, folder: Path):
    (folder / "leads.jsonl").write_text("{}\n")
    ran = headway("import", "leads.jsonl")
    assert ran.code == 2
    assert "pass --app with an App that has an @app.importer(name)" in ran.err


@pytest.mark.parametrize("line", [["jobs", "--store", ""], ["--store", "", "jobs"]])
def test_empty_store_is_refused(headway: Headway, line: list[str], folder: Path):
    ran = headway(*line)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("headway: --store is empty (pass a URL such as sqlite:///headway.db")
    assert not (folder / "headway.db").exists()


def test_empty_store_variable_counts_as_unset(
    headway: Headway, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HEADWAY_STORE", "")
    assert headway("migrate").code == 0
    assert (folder / "headway.db").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["jobs", "--worker", "w", "--lane", "a"], "--worker lists what a worker runs or awaits"),
        (["jobs", "--worker", "w", "--newest"], "--worker lists what a worker runs or awaits"),
        (["jobs", "--worker", "w", "--cursor", "3"], "--worker lists what a worker runs or awaits"),
        (["lanes", "--lane", ""], "lane is empty"),
        (["lanes", "--latency", "--lane", ""], "lane is empty"),
    ],
)
def test_contradictory_filters_are_refused(headway: Headway, line: list[str], said: str):
    assert headway("migrate").code == 0
    ran = headway(*line)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"headway: {said}")
    assert headway("jobs", "--worker", "w", "--limit", "3").code == 0


def test_gates_page_after_the_last_says_that_there_are_no_more(headway: Headway):
    assert headway("migrate").code == 0
    assert "no gates: an App declares them with its first send" in headway("gates").err
    assert "no more gates" in headway("gates", "--cursor", "z").err


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--limit", "0", "'0' should be greater than or equal to 1"),
        ("--limit", "1001", "'1001' should be less than or equal to 1000"),
        ("--limit", "x", "'x' should be a valid integer"),
    ],
)
def test_number_that_is_refused_is_in_the_error(
    headway: Headway, option: str, value: str, said: str
):
    ran = headway("jobs", option, value)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"headway: invalid value for '{option}': {said} (see headway jobs --help)\n"
