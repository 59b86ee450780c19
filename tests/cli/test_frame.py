from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.cli.failures import exit_code
from headway.cli.main import COMMANDS, call
from headway.core import errors
from tests.cli.conftest import Headway

Completed = Callable[[str], list[str]]


def test_help_without_arguments_lists_every_command(headway: Headway):
    ran = headway()
    assert ran.code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in ran.out


def test_argument_in_another_encoding_is_refused_clearly(headway: Headway):
    """A terminal that is not set to UTF-8 passes such an argument."""
    sent = headway(
        "send", "noop", "--due", "2099-01-01T00:00Z", "--json", "--store", "sqlite:///x.db"
    )
    job = sent.document["jobs"][0]["id"]
    ran = headway("cancel", job, "--reason", "b\udce4h", "--store", "sqlite:///x.db")
    assert ran.code == 2
    assert "the argument 'b\\udce4h' is not UTF-8 (nothing was written" in ran.err


def test_path_that_is_not_utf8_is_reported_as_json(headway: Headway):
    ran = headway("simulate", "b\udce4h", "--json")
    assert (ran.code, ran.out) == (2, "")
    assert json.loads(ran.err)["error"]["message"].startswith("b\\udce4h: the scenario cannot be ")


@pytest.mark.parametrize(
    "line",
    [
        ["jobs", "--store", f"sqlite:///{'a' * 300}"],
        ["send", "noop", "--app", f"{'a' * 300}.py"],
        ["export", "--out", "a" * 300],
    ],
)
def test_path_refused_by_the_system_is_not_a_bug(headway: Headway, line: list[str]):
    headway("migrate")
    ran = headway(*line)
    # From Python 3.14, a path that the system refuses counts as one that does not exist.
    assert (ran.code, ran.out) in {(2, ""), (4, "")}
    assert re.search(r"File name too long|there is no (file|store)", ran.err)


@pytest.mark.parametrize("encoding", ["latin-1", "koi8-r"])
def test_characters_unknown_to_the_terminal_are_escaped(headway: Headway, encoding: str):
    headway("send", "noop", "--subject", "☃ 😀 é")

    def run(*arguments: str) -> bytes:
        return subprocess.run(
            [sys.executable, "-m", "headway", *arguments],
            env={**os.environ, "PYTHONIOENCODING": encoding},
            capture_output=True,
            check=True,
        ).stdout

    table = run("jobs").decode(encoding)
    assert "\\u2603 \\U0001f600 " in table
    assert json.loads(run("jobs", "--json").decode())["jobs"][0]["subject"] == "☃ 😀 é"
    assert run("pause", "lane:☃")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_lists_its_options_with_store_and_json(headway: Headway, name: str):
    ran = headway(name, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: headway {name}")
    assert "--store" in ran.out
    assert "--json" in ran.out
    assert "Raises:" not in ran.out
    assert "Args:" not in ran.out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["jbos"], "headway: there is no command 'jbos' (did you mean jobs?)\n"),
        (["zzz"], "headway: there is no command 'zzz' (see headway --help)\n"),
        (["jobs", "--lan", "x"], "headway: no such option: --lan"),
        (["jobs", "--limit", "many"], "headway: invalid value for '--limit'"),
        (["jobs", "--limit", "0"], "headway: invalid value for '--limit'"),
        (["jobs", "--state", "asleep"], "headway: invalid value for '--state'"),
        (["job"], "headway: missing argument"),
        (["gates", "nope"], "headway: no such command 'nope'"),
        *(
            ([group, name], f"headway: no such command '{name}' (headway {group} lists them)\n")
            for group in ("gates", "lanes", "timetable", "bridge")
            for name in ("list", "ls")
        ),
        (["--nope"], "headway: no such option: --nope"),
    ],
)
def test_usage_error_is_one_line_with_a_hint_and_exit_code_2(
    headway: Headway, line: list[str], said: str
):
    ran = headway(*line)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith(said)
    assert ran.err.count("\n") == 1
    assert "(" in ran.err


def test_error_with_json_is_json_on_standard_error(headway: Headway):
    for line in (["--json", "job", "nope"], ["job", "nope", "--json"]):
        headway("migrate")
        ran = headway(*line)
        assert (ran.code, ran.out) == (2, "")
        error = json.loads(ran.err)["error"]
        assert error["code"] == "unknown_job"
        assert set(error) == {"code", "message", "hint"}


def test_error_shows_no_control_characters_of_its_values(headway: Headway):
    headway("migrate")
    ran = headway("job", "\x1b[2J\nevil")
    assert "\x1b" not in ran.err
    assert ran.err.count("\n") == 1


def test_traceback_is_shown_only_on_request(headway: Headway, monkeypatch: pytest.MonkeyPatch):
    assert "Traceback" not in headway("jbos").err
    monkeypatch.setenv("HEADWAY_DEBUG", "1")
    assert "Traceback" in headway("jbos").err


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.InvalidValue, 2),
        (errors.UnknownJob, 2),
        (errors.LeaseLost, 3),
        (errors.StoreUnavailable, 4),
        (errors.SchemaMismatch, 4),
        (errors.HandlerTimeout, 5),
        (errors.InvariantBroken, 70),
        (errors.HeadwayError, 1),
    ],
)
def test_each_branch_of_the_error_tree_has_its_exit_code(
    kind: type[errors.HeadwayError], code: int
):
    assert exit_code(kind("what")) == code


def test_bad_setting_stops_every_command_that_needs_it(headway: Headway, folder: Path):
    folder.joinpath("headway.toml").write_text("stor = 3")
    ran = headway("jobs")
    assert (ran.code, ran.out) == (2, "")
    assert "headway.toml: there is no setting 'stor'" in ran.err


@pytest.mark.parametrize("url", ["nonsense", "mysql://x", "sqlite:", "sqlite:///x.db?fast=1"])
def test_unusable_store_url_is_refused(headway: Headway, url: str):
    ran = headway("jobs", "--store", url)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1


def test_store_can_be_given_before_or_after_the_command(headway: Headway, folder: Path):
    headway("--store", "sqlite:///before.db", "migrate")
    headway("migrate", "--store", "sqlite:///after.db")
    assert folder.joinpath("before.db").exists()
    assert folder.joinpath("after.db").exists()
    assert not folder.joinpath("headway.db").exists()


def test_version_needs_no_store(headway: Headway, folder: Path):
    assert headway("version").out.startswith("headway 0.")
    assert set(headway("version", "--json").document) == {"headway", "python"}
    assert set(headway("--json", "version").document) == {"headway", "python"}
    assert list(folder.iterdir()) == []


def test_version_loads_no_stores_or_settings():
    code = (
        "import sys; from headway.cli.main import call; call(['version']);"
        "print([m for m in ('apsw', 'pydantic_settings', 'rich.console', 'structlog')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_version_is_also_an_option(headway: Headway, folder: Path):
    assert headway("--version").out == headway("version").out
    assert set(headway("--version", "--json").document) == {"headway", "python"}
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        ["simulate", "day.toml"],
        ["carrier", "--port", "0"],
        ["copy", "sqlite:///a.db", "sqlite:///b.db"],
    ],
)
def test_command_without_a_store_refuses_the_option(
    headway: Headway, folder: Path, line: list[str]
):
    for words in ([*line, "--store", "sqlite:///x.db"], ["--store", "sqlite:///x.db", *line]):
        ran = headway(*words)
        assert (ran.code, ran.out) == (2, "")
        assert "does not use --store 'sqlite:///x.db'" in ran.err
    assert list(folder.iterdir()) == []


def test_package_can_be_run_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "headway", "version", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "headway" in json.loads(done.stdout)


@pytest.fixture
def completed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Completed]:
    """Return a function that completes a line, called as bash does."""

    def complete(line: str) -> list[str]:
        capfd.readouterr()
        with monkeypatch.context() as patched:
            patched.setenv("_HEADWAY_COMPLETE", "complete_bash")
            patched.setenv("COMP_WORDS", line)
            patched.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
            with pytest.raises(SystemExit):
                call([])
        printed = capfd.readouterr()
        assert printed.err == ""
        return printed.out.split()

    path = list(sys.path)
    yield complete
    sys.path[:] = path
    sys.modules.pop("own_names", None)


def test_completion_knows_lanes_gates_kinds_and_systems(
    headway: Headway, folder: Path, completed: Completed
):
    assert completed("headway jobs --lane m") == []
    headway("send", "noop", "--lane", "mail", "--store", "sqlite:///other.db")
    headway("send", "letter", "--lane", "mail")
    headway("send", "call", "--lane", "main")
    headway("pause", "lane:mail")
    folder.joinpath("own_names.py").write_text(
        "import headway as hw\nprint('noise')\napp = hw.App()\n"
        "@app.job(gates=[hw.Slots('lines', 3)])\nasync def clean(job: hw.Job): ...\n"
    )
    assert headway("send", "clean", "--app", "own_names.py").code == 0
    assert completed("headway jobs --lane m") == ["mail", "main"]
    assert completed("headway --store sqlite:///other.db jobs --lane m") == ["mail"]
    assert completed("headway lanes set ma") == ["mail", "main"]
    assert completed("headway gates show l") == ["lane:mail", "lines"]
    assert completed("headway pause lane:") == ["lane:", "lane:mail", "lane:main"]
    assert completed("headway resume kind:") == ["kind:", "kind:call", "kind:clean", "kind:letter"]
    assert completed("headway cancel --kind ") == ["call", "clean", "letter"]
    assert completed("headway send c") == ["call", "clean"]
    assert completed("headway send --app own_names.py c") == ["clean"]
    assert completed("headway worker --system ca") == ["calls"]
    assert completed("headway migrate --system f") == ["field_service"]


def test_completion_knows_the_commands():
    done = subprocess.run(
        [sys.executable, "-m", "headway"],
        env={"_HEADWAY_COMPLETE": "complete_bash", "COMP_WORDS": "headway ti", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["timetable"]


def test_closed_pipe_is_no_error(headway: Headway):
    headway("send", "noop", "--count", "1000")
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "export"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stdout.readline().startswith(b'{"format"')
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("line", ["export", "worker APP --drain"])
def test_stream_closed_at_the_start_is_no_error(
    headway: Headway, empty_app: str, line: str, closed: str
):
    headway("send", "noop")
    line = line.replace("APP", empty_app)
    ran = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m headway {line} {closed}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, "bug" in ran.stderr) == (0, False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which only Linux has")
@pytest.mark.parametrize("command", ["jobs", "export", "lanes"])
def test_full_output_device_is_not_a_bug(headway: Headway, command: str):
    headway("send", "noop")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "headway", command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        4,
        "headway: the output cannot be written: No space left on device "
        "(free some space, or write it elsewhere)\n",
    )


def test_unknown_zone_is_an_error(headway: Headway, monkeypatch: pytest.MonkeyPatch):
    headway("send", "noop")
    monkeypatch.setenv("HEADWAY_ZONE", "Europe/Berln")
    ran = headway("jobs")
    assert ran.code == 2
    said = "headway: HEADWAY_ZONE: there is no time zone 'Europe/Berln' (did you mean Europe/Berlin"
    assert ran.err.startswith(said)


def test_bug_is_reported_in_one_line_with_exit_code_70(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    headway("migrate")

    def broken(_: object) -> None:
        message = "two\nlines"
        raise RuntimeError(message)

    monkeypatch.setattr("headway.cli.commands.lanes.record", broken)
    headway("send", "noop")
    ran = headway("lanes", "--json")
    assert (ran.code, ran.out) == (70, "")
    assert ran.err.count("\n") == 1
    assert json.loads(ran.err)["error"]["message"] == "unexpected RuntimeError: two\nlines"
