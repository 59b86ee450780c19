"""The built wheel, installed with each extra alone: each command works, or names what is missing.

An environment is simulated without a download: a virtual environment with the unpacked wheel and
links to those packages of the development environment that the wheel's own metadata requires. The
versions are therefore the pinned ones. The bare environment is created by pip itself.
"""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headway.cli.main import COMMANDS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[2]
EXTRAS = ("plot", "fast", "postgres", "redis", "server", "client", "alerts", "mail", "systems")
EXTRAS += ("otel", "top", "kafka", "cassandra", "all")
BRINGS = {
    "systems": {"systems", "alerts", "client", "server"},
    "all": set(EXTRAS),
}
"""Extras that include others. Every other extra includes only itself."""


@dataclass(frozen=True)
class Call:
    """One command line.

    Attributes:
        line: its words.
        needs: the extra without which it must fail and name that extra; None if it needs none.
        enough: another extra with which it works, if there is one.
        code: exit code of a call that works.
        until: text on standard output or error after which the call is stopped with SIGTERM.
        text: text in the output of a call that works.
    """

    line: str
    needs: str | None = None
    enough: str | None = None
    code: int = 0
    until: str | None = None
    text: str = ""


NEEDY = ("serve", "dispenserd", "carrier", "automations")
"""Commands that show their options only if their extra is installed."""

CALLS = [
    Call("version"),
    Call("migrate"),
    Call("send noop --lane mail"),
    Call("jobs", text="noop"),
    Call("job JOB", text="noop"),
    Call("why JOB"),
    Call("lanes", text="mail"),
    Call("lanes set mail --concurrency 2"),
    Call("top", needs="top", code=2, text="needs a terminal"),
    Call("top --once", text="mail"),
    Call("top --once --server http://127.0.0.1:1", needs="client", code=4),
    Call("gates"),
    Call("pause lane:mail"),
    Call("resume lane:mail"),
    Call("timetable"),
    Call("audit"),
    Call("doctor", text="integrity"),
    Call("cancel JOB", text="cancelled"),
    Call("retry JOB", text="waiting"),
    Call("worker app.py --lanes mail,main --drain"),
    Call("worker --drain --system lanes", needs="systems", enough="server"),
    Call("worker --drain --system calls", needs="systems"),
    Call("import rows.jsonl --app app.py"),
    Call("export", text='"kind":"hello"'),
    Call("copy sqlite:///headway.db sqlite:///copy.db"),
    Call("token"),
    Call("simulate day.toml", text="day"),
    Call("simulate day.toml --out pictures", needs="plot"),
    Call("migrate --system calls", needs="systems"),
    Call("run app.py", until="worker starts"),
    Call("run app.py --port 0", needs="server", until="server listens"),
    Call("serve --port 0", needs="server", until="server listens"),
    Call("serve --port 0 --system lanes", needs="server", until="server listens"),
    Call("dispenserd --port 0", needs="server", until="dispenserd listens"),
    Call("carrier --port 0", needs="systems", until="account_sid"),
    Call("jobs --store postgresql://127.0.0.1:1/nothing", needs="postgres", code=4),
    Call("doctor --store postgresql://127.0.0.1:1/nothing", needs="postgres", code=1),
    Call("migrate --store postgresql://127.0.0.1:1/nothing", needs="postgres", code=4),
    Call("jobs --store redis://127.0.0.1:1", needs="redis", code=4),
    Call("doctor --store redis://127.0.0.1:1", needs="redis", code=1),
    Call("send hello --app app.py --store http://127.0.0.1:1", needs="client", code=4),
    Call("bridge kafka-in", needs="kafka", code=2),
    Call("bridge kafka-out --servers 127.0.0.1:1", needs="kafka", until="worker starts"),
    Call("serve --help", needs="server", text="Usage: "),
    Call("dispenserd --help", needs="server", text="Usage: "),
    Call("carrier --help", needs="systems", text="Usage: "),
    Call("automations --help", needs="server", text="Usage: "),
    Call("automations plan --file automations.toml", needs="server", text="hello"),
    Call(" ; ".join(f"{name} --help" for name in COMMANDS if name not in NEEDY), text="Usage: "),
]

FILES = {
    "app.py": """
import headway as hw

app = hw.App()


@app.job()
async def hello() -> None: ...


@app.importer("rows")
def rows(row):
    return [hello.make()]
""",
    "rows.jsonl": "{}\n",
    "automations.toml": """
[[automation]]
id = "hello"
repository = "https://example.org/hello.git"
schedule = "30m"
command = "true"
""",
    "day.toml": """
name = "day"
start = "2026-01-05T08:00:00Z"
duration = "1h"

[kinds.letter]
lane = "mail"

[[workers]]
name = "w"
lanes = ["mail"]

[[arrivals]]
kind = "letter"
rate = "10/h"
""",
}

# Each call runs in a fork of one process that has imported what a bare install provides. That cost
# is paid once, and what one call loads or sets does not affect the next.
DRIVER = """
import json, os, select, signal, sys
import headway.cli.app_file
from headway.cli.main import call

def run(words, until):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.dup2(write, 1)
        os.dup2(write, 2)
        code = 99
        try:
            for line in " ".join(words).split(" ; "):
                code = call(line.split())
                if code:
                    break
            sys.stdout.flush()
        finally:
            os._exit(code)
    os.close(write)
    said = b""
    while True:
        ready, _, _ = select.select([read], [], [], 120)
        more = os.read(read, 65536) if ready else b""
        if not ready:
            os.kill(child, signal.SIGKILL)
            said += b" (nothing more for two minutes)"
        if not more:
            break
        said += more
        if until and until.encode() in said:
            os.kill(child, signal.SIGTERM)
            until = None
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said.decode()

job = ""
results = []
for words, until in json.load(sys.stdin):
    code, said = run([job if word == "JOB" else word for word in words], until)
    if words[0] == "send" and not job:
        job = said.strip()
    results.append([code, said])
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what is needed to build it."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(REPOSITORY / "src", source / "src", ignore=skipped)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source / name)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(target)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel: Path) -> Path:
    """The files of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "unpacked")
    # As pip does. Otherwise each of the many processes would compile what it imports.
    compileall.compile_dir(wheel.parent / "unpacked", quiet=1)
    return wheel.parent / "unpacked"


def closure(wheel: Distribution, extra: str | None) -> dict[str, Distribution]:
    """Return the packages that an install of the wheel with an extra includes, by name."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    todo = [(wheel, each) for each in ("", extra or "")]
    while todo:
        package, wanted = todo.pop()
        name = canonicalize_name(package.metadata["Name"])
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        if name != "headway":
            found[name] = package
        for text in package.requires or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": wanted}):
                own = canonicalize_name(needed.name) == "headway"
                next_one = wheel if own else distribution(needed.name)
                todo += [(next_one, each) for each in ("", *needed.extras)]
    return found


def extra_environment(folder: Path, unpacked: Path, extra: str | None) -> Path:
    """Create an environment with the wheel and the packages of an extra; return its Python."""
    (wheel,) = distributions(path=[str(unpacked)])
    return environment(folder, unpacked, closure(wheel, extra).values())


def environment(folder: Path, unpacked: Path, packages: Iterable[Distribution]) -> Path:
    """Create an environment with the wheel and some packages; return its Python."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for entry in unpacked.iterdir():
        (site / entry.name).symlink_to(entry)
    for package in packages:
        for file in package.files or []:
            top = file.parts[0]
            if top not in {"..", "__pycache__"} and not (site / top).exists():
                (site / top).symlink_to(Path(str(package.locate_file(top))))
    return folder / "bin" / "python"


def played(python: Path, folder: Path) -> Iterator[tuple[Call, int, str]]:
    """Run every call with this Python; return the exit code and the whole output of each."""
    for name, text in FILES.items():
        folder.joinpath(name).write_text(text, encoding="utf-8")
    variables = {key: value for key, value in os.environ.items() if not key.startswith("HEADWAY_")}
    done = subprocess.run(
        [python, "-c", DRIVER],
        input=json.dumps([[call.line.split(), call.until] for call in CALLS]),
        cwd=folder,
        env=variables | {"PYTHONPATH": "", "HEADWAY_LOG_FORMAT": "json"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: list[list[Any]] = json.loads(done.stdout)
    for call, (code, said) in zip(CALLS, results, strict=True):
        yield call, code, said


def wrong(call: Call, code: int, said: str, extra: str | None) -> str:
    """Return what is wrong with a call, or an empty text."""
    needs = call.needs
    brought = BRINGS.get(extra or "", {extra})
    if "Traceback" in said or code in {70, 99} or code < 0:
        return f"{call.line}: crashed with {code}: {said[-600:]}"
    if needs is None or needs in brought or call.enough in brought - {None}:
        works = code == call.code and call.text in said and "pip install" not in said
        return "" if works else f"{call.line}: ended with {code}: {said[-600:]}"
    named = f"pip install 'headway[{needs}]'" in said and code in {1, 2, 4}
    return "" if named else f"{call.line}: does not name {needs}, ended with {code}: {said[-600:]}"


@pytest.mark.parametrize("extra", [None, *EXTRAS])
def test_every_command_works_with_each_extra_alone_or_names_the_extra_it_needs(
    extra: str | None, unpacked: Path, tmp_path: Path
) -> None:
    try:
        python = extra_environment(tmp_path / "env", unpacked, extra)
    except PackageNotFoundError as error:
        pytest.fail(f"the development environment lacks a package of this extra: {error}")
    folder = tmp_path / "work"
    folder.mkdir()
    found = [wrong(call, code, said, extra) for call, code, said in played(python, folder)]
    assert "\n".join(filter(None, found)) == ""


def test_pip_installs_the_wheel_with_its_command(
    wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    python = extra_environment(tmp_path / "env", unpacked, None)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    for entry in unpacked.iterdir():
        (site / entry.name).unlink()
    install = [sys.executable, "-m", "pip", f"--python={python}", "install", "--no-index", "-q"]
    subprocess.run([*install, "--no-deps", str(wheel)], check=True, capture_output=True)
    for words in (["--help"], ["version"]):
        command = [python.parent / "headway", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "headway" in done.stdout.lower()


def test_every_extra_of_the_project_is_installed_alone_by_these_tests(unpacked: Path) -> None:
    (wheel,) = distributions(path=[str(unpacked)])
    assert set(wheel.metadata.get_all("Provides-Extra") or ()) == set(EXTRAS)


def test_demo_needs_no_more_than_its_own_requirements(unpacked: Path, tmp_path: Path) -> None:
    text = (REPOSITORY / "requirements" / "demo.txt").read_text("utf-8")
    packages: list[Distribution] = []
    for name in re.findall(r"^([\w.-]+)(?:\[.*])?==", text, re.MULTILINE):
        with suppress(PackageNotFoundError):  # pinned for other platforms
            packages.append(distribution(name))
    python = environment(tmp_path / "env", unpacked, packages)
    code = """
import importlib, pkgutil, sys
sys.path.insert(0, "")
import examples.demo
for found in pkgutil.walk_packages(examples.demo.__path__, "examples.demo."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""
    for line in (["-c", code], ["-m", "examples.demo", "--help"]):
        done = subprocess.run(
            [python, *line], cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
