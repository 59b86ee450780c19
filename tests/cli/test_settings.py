from __future__ import annotations

from pathlib import Path

import pytest

from headway.cli.settings import Settings, load_settings
from headway.core.errors import InvalidValue
from tests.cli.conftest import Headway


def test_defaults_apply_without_file_and_variables(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HEADWAY_ZONE")
    monkeypatch.delenv("HEADWAY_AUTHOR")
    settings = load_settings()
    assert settings.store == "sqlite:///headway.db"
    assert settings.model_dump() == Settings().model_dump()


def test_file_is_read_and_a_variable_overrides_it(folder: Path, monkeypatch: pytest.MonkeyPatch):
    folder.joinpath("headway.toml").write_text('store = "sqlite:///a.db"\nlog_level = "debug"\n')
    monkeypatch.setenv("HEADWAY_STORE", "sqlite:///b.db")
    settings = load_settings()
    assert (settings.store, settings.log_level) == ("sqlite:///b.db", "debug")


def test_file_with_a_byte_order_mark_is_read(folder: Path):
    folder.joinpath("headway.toml").write_text('log_level = "debug"\n', encoding="utf-8-sig")
    assert load_settings().log_level == "debug"


def test_another_file_can_be_named_by_a_variable(folder: Path, monkeypatch: pytest.MonkeyPatch):
    folder.joinpath("other.toml").write_text('store = "memory://"\n')
    monkeypatch.setenv("HEADWAY_CONFIG", "other.toml")
    assert load_settings().store == "memory://"


def test_missing_named_file_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADWAY_CONFIG", "nowhere.toml")
    with pytest.raises(InvalidValue, match=r"nowhere\.toml does not exist"):
        load_settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('stor = "x"', r"headway\.toml: there is no setting 'stor' \(did you mean store\?\)"),
        ("store = 3", r"headway\.toml: store: it should be text, and is 3 \(URL of the store\)"),
        (
            'log_level = "loud"',
            "log_level: it should be 'debug', .*, and is .loud. .minimum log level",
        ),
        ('public_url = "calls.example.org"', r"public_url: is not a URL that starts with https://"),
        ("store = ", r"headway\.toml is not valid TOML"),
        (
            "log_file_keep = 0",
            "log_file_keep: it should be at least 1, and is 0 .number of rotated",
        ),
        ("hooks = 3", "hooks: it should be a table .webhook keys, by provider"),
        ("[store]\nurl = 1", r"headway\.toml: store: it should be text, and is a table"),
    ],
)
def test_bad_file_is_an_error_with_file_and_key(folder: Path, text: str, said: str):
    folder.joinpath("headway.toml").write_text(text)
    with pytest.raises(InvalidValue, match=said):
        load_settings()


def test_bad_variable_is_an_error_with_its_name_and_never_its_value(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("HEADWAY_LOG_FILE_KEEP", "hunter2")
    with pytest.raises(InvalidValue, match="HEADWAY_LOG_FILE_KEEP: it should be a whole") as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)


def test_variable_that_is_not_one_of_its_choices_is_an_error_with_its_value(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("HEADWAY_LOG_LEVEL", "loud")
    with pytest.raises(InvalidValue, match=r"HEADWAY_LOG_LEVEL: .*'debug', .*is .loud"):
        load_settings()


def test_note_names_a_variable_that_is_spelt_like_one_that_is_read(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    for name in ("STROE", "LOGLEVEL", "HOOKS__TWILIO", "SERVICE_HOST", "PORT_8080_TCP", "TOKEN"):
        monkeypatch.setenv(f"HEADWAY_{name}", "{}")
    assert headway("jobs").err.splitlines()[:-1] == [
        "note: the variable HEADWAY_LOGLEVEL is not read (did you mean HEADWAY_LOG_LEVEL?)",
        "note: the variable HEADWAY_STROE is not read (did you mean HEADWAY_STORE?)",
    ]


def test_variable_for_a_table_is_json(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADWAY_HOOKS", "hunter2")
    with pytest.raises(
        InvalidValue, match=r"^HEADWAY_HOOKS: it is not JSON: .*HOOKS__KEY"
    ) as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)
