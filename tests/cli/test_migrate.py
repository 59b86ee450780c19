from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.cli.conftest import Headway


def test_store_is_created_once(headway: Headway, folder: Path):
    first = headway("migrate", "--json")
    assert first.code == 0
    assert first.document["before"] == 0
    again = headway("migrate", "--json").document
    assert again["before"] == again["now"] == first.document["now"]
    assert folder.joinpath("headway.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "line",
    [
        ["jobs"],
        ["job", "x"],
        ["why", "x"],
        ["lanes"],
        ["gates"],
        ["pause", "all"],
        ["cancel", "x"],
        ["audit"],
        ["timetable"],
        ["export"],
    ],
)
def test_check_does_not_create_a_missing_store(headway: Headway, folder: Path, line: list[str]):
    ran = headway(*line)
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith("headway: there is no store at headway.db (")
    assert list(folder.iterdir()) == []


def test_newer_schema_is_refused_and_not_changed(headway: Headway, folder: Path):
    headway("migrate")
    db = apsw.Connection("headway.db")
    db.pragma("user_version", 9999)
    db.close()
    before = folder.joinpath("headway.db").read_bytes()
    for command in ("migrate", "jobs"):
        ran = headway(command)
        assert (ran.code, ran.out) == (4, "")
        assert "9999" in ran.err
    assert folder.joinpath("headway.db").read_bytes() == before


def test_foreign_database_is_refused_and_not_changed(headway: Headway, folder: Path):
    db = apsw.Connection("headway.db")
    db.execute("CREATE TABLE mine (x)")
    db.close()
    before = folder.joinpath("headway.db").read_bytes()
    assert headway("migrate").code == 4
    assert headway("jobs").code == 4
    assert folder.joinpath("headway.db").read_bytes() == before


def test_missing_folder_is_an_error(headway: Headway):
    ran = headway("migrate", "--store", "sqlite:///nowhere/headway.db")
    assert ran.code == 4
    assert "folder" in ran.err


def test_store_without_persistence_has_no_schema(headway: Headway):
    assert headway("migrate", "--store", "memory://").code == 2
