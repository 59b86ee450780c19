"""automations.toml: valid entries run, and invalid ones are reported with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.core.errors import InvalidValue
from headway.core.timetable.schedule import At, Cron, Every
from headway.systems.automations.config import Config, parse_config, read_config, read_schedule

FILE = Path("/srv/automations.toml")
VALID = '[[automation]]\nid = "good"\nrepository = "/srv/r"\nschedule = "30m"\ncommand = "true"\n'


def parsed(text: str) -> Config:
    return parse_config(text, FILE)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("30m", Every(1_800_000)),
        ("every 30m", Every(1_800_000)),
        ("0 9 * * 1-5", Cron("0 9 * * 1-5", tz="Europe/Berlin")),
        ("cron: 0 9 * * *", Cron("0 9 * * *", tz="Europe/Berlin")),
        ("@daily", Cron("@daily", tz="Europe/Berlin")),
        ("09:00", At("09:00", tz="Europe/Berlin")),
        ("at 09:00 mon-fri", At("09:00", tz="Europe/Berlin", days="mon-fri")),
        ({"type": "interval", "value": "1h30m"}, Every(5_400_000)),
        ({"type": "cron", "value": "5 * * * *", "tz": "UTC"}, Cron("5 * * * *")),
        ({"type": "at", "value": "09:00 sat"}, At("09:00", tz="Europe/Berlin", days="sat")),
    ],
)
def test_schedules_are_read_as_text_and_as_type_and_value(written, expected):
    assert read_schedule(written, tz="Europe/Berlin") == expected


def test_whole_file_is_read_with_defaults():
    config = parsed(f'[dispatcher]\nmax_concurrent = 5\nlog_level = "debug"\n\n{VALID}')
    assert config.faults == ()
    assert config.dispatcher.max_concurrent == 5
    assert config.dispatcher.lock_timeout_hours == 4
    good = config.automations["good"]
    assert (good.repository.key, good.line) == ("/srv/r", 5)
    assert good.table.timeout == 3_600_000
    assert (good.table.enabled, good.table.overlap, good.window) == (True, "skip", None)


@pytest.mark.parametrize("sign", ["\x85", "\u2028", "\u2029"])
def test_character_that_ends_no_line_of_toml_ends_none_here(sign: str):
    config = parsed(f'# a{sign}b\n{VALID}tz = "x{sign}y"\n{VALID.replace("good", "next")}')
    (fault,) = config.faults
    assert (fault.automation_id, fault.line) == ("good", 5)
    assert config.automations["next"].line == 8


PLAIN = 'id = "x"\nrepository = "/r"\nschedule = "5m"\ncommand = "a"'


@pytest.mark.parametrize(
    ("broken", "line", "said"),
    [
        (PLAIN.replace("5m", "61 * * * *"), 9, "schedule"),
        (PLAIN.replace("/r", "ext::x"), 8, "repository"),
        (PLAIN.replace('\ncommand = "a"', ""), 6, "command is missing"),
        (f'{PLAIN}\ntimeuot = "1m"', 11, "timeout"),
        (f'{PLAIN}\ntimeout = "1x"', 11, "1x"),
        (PLAIN.replace('/r"', "/r"), 8, "not TOML"),
        (PLAIN.replace('"x"', '"a b"'), 7, "it should be text that matches"),
        (PLAIN.replace('"x"', '"good"'), 7, "is already used in line 1"),
        (f'{PLAIN}\nwindow = "9-"', 11, "window"),
        (PLAIN.replace('"5m"', '{type = "moon", value = "1"}'), 9, "moon"),
        (f"{PLAIN}\npriority = true", 11, "priority"),
    ],
)
def test_invalid_entry_is_reported_with_its_line_and_disables_only_itself(broken, line, said):
    other = VALID.replace("good", "other")
    config = parsed(f"{VALID}[[automation]]\n{broken}\n{other}")
    assert list(config.automations) == ["good", "other"]
    (fault,) = config.faults
    assert fault.line == line
    assert said in fault.error
    assert str(fault).startswith(f"{FILE}:{line}: ")


def test_syntax_error_is_reported_with_the_id_and_the_column():
    broken = PLAIN.replace('/r"', "/r")
    (fault,) = parsed(f"[[automation]]\n{broken}").faults
    assert (fault.automation_id, fault.line) == ("x", 3)
    assert fault.error.startswith("not TOML: ")
    assert fault.error.endswith(" (column 17)")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('priority = "high"', 'priority: it should be a whole number, and is "high"'),
        ("priority = true", "priority: it should be a whole number, and is true"),
        ("priority = -1", "priority: it should be at least 0, and is -1"),
        ("schedule = 30", "schedule: it should be text or a table, and is 30"),
        ("window = 9", "window: it should be text or a table, and is 9"),
        ("window = {hours = 9}", "window: it should be text, and is 9"),
        ('timeout = "1x"', "timeout: "),
        ("enabled = 1", "enabled: it should be true or false, and is 1"),
        ('overlap = "both"', "overlap: it should be 'skip', 'one' or 'all', and is \"both\""),
        ('env = {"A=B" = "c"}', 'env: the name of a variable is empty or contains "="'),
        ('env = {"" = "c"}', 'env: the name of a variable is empty or contains "="'),
        ('env = {A = "\\u0000"}', "env: it contains NUL"),
        ('command = ["a", "\\u0000"]', "command: it contains NUL"),
        ('ref = "\\u0000"', "ref: it contains NUL"),
    ],
)
def test_error_shows_the_value_and_what_is_allowed(line, said):
    key = line.partition(" ")[0]
    lines = [one for one in PLAIN.splitlines() if not one.startswith(key)]
    (fault,) = parsed("\n".join(["[[automation]]", *lines, line])).faults
    assert fault.error.startswith(said)
    assert "Value error" not in fault.error


@pytest.mark.parametrize(
    "line", ["env = {KEY = 123456}", "command = 123456", "repository = 123456"]
)
def test_error_repeats_no_possibly_secret_value(line):
    key = line.partition(" ")[0]
    lines = [one for one in PLAIN.splitlines() if not one.startswith(key)]
    (fault,) = parsed("\n".join(["[[automation]]", *lines, line])).faults
    assert "123456" not in fault.error


def test_token_is_not_repeated_in_reports():
    entry = 'id = "x"\nrepository = "rsync://ada:TOKEN@h/r"\nschedule = "5m"\ncommand = "a"\n'
    (fault,) = parsed(f"[[automation]]\n{entry}").faults
    assert "TOKEN" not in str(fault)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("max_concurrent = 10001", "max_concurrent: it should be at most 10000, and is 10001"),
        ("lock_timeout_hours = inf", "lock_timeout_hours: it should be at most "),
        ("governor = {max_concurrent = 10001}", "governor: it should be at most 10000"),
    ],
)
def test_limit_that_cannot_be_applied_is_reported_and_affects_no_entry(line, said):
    config = parsed(f"[dispatcher]\n{line}\n{VALID}")
    assert (config.dispatcher.max_concurrent, config.dispatcher.lock_timeout_hours) == (3, 4)
    assert list(config.automations) == ["good"]
    (fault,) = config.faults
    assert said in fault.error


def test_table_that_is_no_list_of_entries_is_reported_with_how_to_write_it():
    (fault,) = parsed(VALID.replace("[[automation]]", "[automation]")).faults
    assert fault.error == "there is no table 'automation'; write [[automation]]"


def test_header_inside_a_multiline_text_is_not_one():
    text = VALID.replace('"true"', '"""\necho 1\n[[automation]]\n[x]\n"""')
    config = parsed(f"{text}{VALID.replace('good', 'other')}")
    assert config.faults == ()
    assert list(config.automations) == ["good", "other"]
    assert "[[automation]]" in config.automations["good"].table.command


def test_tables_of_an_entry_belong_to_it():
    text = f'{VALID}[automation.env]\nA = "1"\n[automation.window]\nhours = "09:00-17:00"\n'
    config = parsed(f"{text}[dispatcher]\nmax_concurrent = 1\n")
    good = config.automations["good"]
    assert good.table.env == {"A": "1"}
    assert good.window is not None
    assert config.dispatcher.max_concurrent == 1


def test_misspelt_key_is_reported_rather_than_a_missing_one():
    config = parsed(VALID.replace("command", "comand"))
    (fault,) = config.faults
    assert fault.error == "there is no key 'comand'; did you mean command?"


def test_unknown_key_or_table_is_reported_with_the_known_ones():
    (fault,) = parsed(VALID.replace("command", "xyz")).faults
    assert fault.error.startswith("there is no key 'xyz'; known: artifacts, command, ")
    (fault,) = parsed(f"[xyz]\na = 1\n{VALID}").faults
    assert fault.error == "there is no table 'xyz'; known: dispatcher, automation"


def test_wrong_dispatcher_key_leaves_the_others_unchanged():
    head = '[dispatcher]\nmax_concurrent = 5\nlog_level = "loud"\n'
    config = parsed(f"{head}[dispatcher.notification]\non_error = true\n\n{VALID}")
    assert (config.dispatcher.max_concurrent, config.dispatcher.log_level) == (5, "info")
    assert [(one.line, one.error.partition(";")[0].partition(":")[0]) for one in config.faults] == [
        (3, "log_level"),
        (4, "there is no key 'notification'"),
    ]


@pytest.mark.parametrize(
    "line", ["max_concurrent = 1O", "log_level = info", "enabled = false", "= 3", "a ="]
)
def test_line_of_the_dispatcher_that_is_not_toml_enables_nothing(line: str):
    config = parsed(f"[dispatcher]\nenabled = false\nlock_timeout_hours = 2\n{line}\n{VALID}")
    assert (config.dispatcher.enabled, config.dispatcher.lock_timeout_hours) == (False, 2)
    assert [(one.line, one.error[:10]) for one in config.faults] == [(4, "not TOML: ")]
    assert len(config.automations) == 1


def test_unknown_table_and_a_wrong_dispatcher_are_reported():
    config = parsed(f"[dispatch]\na = 1\n[dispatcher]\nmax_concurrent = -1\n{VALID}")
    assert [fault.line for fault in config.faults] == [1, 4]
    assert list(config.automations) == ["good"]


@pytest.mark.parametrize("text", ["", " \n\n", "\ufeff"])
def test_empty_file_is_one_that_is_not_written_yet(tmp_path: Path, text: str):
    path = tmp_path / "automations.toml"
    path.write_text(text)
    with pytest.raises(InvalidValue, match="is empty"):
        read_config(path)
    path.write_text("# no entries\n")
    assert read_config(path).faults == ()


def test_first_table_after_a_byte_order_mark_is_read(tmp_path: Path):
    path = tmp_path / "automations.toml"
    path.write_text(f"{VALID}{VALID.replace('good', 'other')}", encoding="utf-8-sig")
    config = read_config(path)
    assert (config.faults, list(config.automations)) == ((), ["good", "other"])


def test_empty_file_is_valid():
    assert parsed("\n# nothing\n") == Config()
