from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.docs.pages import ROOT, Block, Page, all_pages, read_page
from tests.docs.play import commands, matches
from tests.servers.fixtures import made
from tests.servers.postgres import fresh_database
from tests.servers.redis import RedisServer

PORT = re.compile(r"""(?:--port[ =]|"127\.0\.0\.1", )(\d{4,5})""")
RUN = {"python", "console", "toml", "json"}
LIMIT_S = 600
"""Time limit for a page. It only stops a page that hangs, however busy the machine is."""
ENDING_S = 60
QUICK = {"README.md"}
"""Pages that `make test` plays. All others are slow."""
FIRST = ("docs/tutorials/first-job.md", "## Send from Python")
"""The first tutorial, and the heading up to which `make test` plays it."""
SHOWN = {"text", "ini", "sh", "sql", "jsonl", ""}


WHOLE = """
```python file=three.py
THREE = 3
```
```python
import asyncio
from three import THREE

await asyncio.sleep(0)
four = THREE + 1
```
```python
print(four, id(four))
```
```text output
4 …
```
```console
$ cat three.py
THREE = 3
$ printf 'a\\nb\\nc\\n'
…
c
$ echo a \\
  b
a b
$ name=ada
$ echo $name >&2; cat
ada
```
"""


def played() -> list[ParameterSet]:
    pages = [page for page in all_pages() if any(_is_run(block) for block in page.blocks)]
    return [pytest.param(page, id=page.name, marks=_marks(page)) for page in pages]


def _marks(page: Page) -> list[pytest.MarkDecorator]:
    limit = pytest.mark.timeout(LIMIT_S + 2 * ENDING_S)
    return [limit] if page.name in QUICK else [limit, pytest.mark.slow]


def _is_run(block: Block) -> bool:
    return "norun" not in block.options and (block.language in RUN or block.file is not None)


@pytest.mark.parametrize("page", played())
def test_every_block_of_the_page_does_what_the_page_says(
    page: Page, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with _servers_for(page, request) as variables:
        done = play(page.path, tmp_path, variables)
    assert done.returncode == 0, done.stdout[-8000:]


@pytest.mark.slow
def test_start_of_the_first_tutorial_does_what_it_says(tmp_path: Path) -> None:
    name, heading = FIRST
    whole = (ROOT / name).read_text(encoding="utf-8")
    scheme_of, found, rest = whole.partition(f"\n{heading}\n")
    assert found
    assert "```console" in rest  # the whole page is slow, and plays more
    page = tmp_path / "page.md"
    page.write_text(scheme_of, encoding="utf-8")
    done = play(page, tmp_path)
    assert done.returncode == 0, done.stdout[-8000:]


@contextmanager
def _servers_for(page: Page, request: pytest.FixtureRequest) -> Generator[dict[str, str]]:
    """Provide the variables that a page refers to: an empty database, a separate Redis."""
    variables: dict[str, str] = {}
    with ExitStack() as servers:
        if _speaks_of(page, "DATABASE_URL"):
            server = request.getfixturevalue("postgres_server")
            variables["DATABASE_URL"] = servers.enter_context(fresh_database(server.url))
        if _speaks_of(page, "REDIS_URL"):
            redis = made(lambda: RedisServer({"appendonly": "yes", "appendfsync": "everysec"}))
            variables["REDIS_URL"] = servers.enter_context(redis).url
        yield variables


def _speaks_of(page: Page, variable: str) -> bool:
    return any(variable in block.text for block in page.blocks if _is_run(block))


def test_no_two_played_pages_listen_on_the_same_port() -> None:
    """Pages are played in parallel."""
    users: defaultdict[str, set[str]] = defaultdict(set)
    for page in all_pages():
        for block in page.blocks:
            if _is_run(block):
                for port in PORT.findall(block.text):
                    users[port].add(page.name)
    assert len(users) > 10
    assert {port: names for port, names in users.items() if len(names) > 1} == {}


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: page.name)
def test_every_block_is_run_or_is_text(page: Page) -> None:
    strange = [
        f"{page.name}:{block.line}: {block.language}"
        for block in page.blocks
        if block.language not in RUN | SHOWN and block.file is None
    ]
    assert strange == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```python\nprint(1)\n```\n```text output\n2\n```\n", "but this was printed"),
        ("```console\n$ echo no\nyes\n```\n", "but this was printed"),
        ("```console\n$ false\n```\n", "ended with 1"),
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```toml\na = \n```\n", "TOMLDecodeError"),
    ],
)
def test_page_with_a_wrong_claim_is_found(text: str, said: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    done = play(page, tmp_path)
    assert done.returncode != 0
    assert said in done.stdout


def test_failing_page_ends_what_it_started(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ sleep 600 &\n$ echo no\nyes\n```\n", encoding="utf-8")
    done = play(page, tmp_path)
    assert done.returncode != 0
    assert "but this was printed" in done.stdout


def test_hanging_page_is_stopped_and_says_where_it_was(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ kill -TERM $PPID; sleep 600\n```\n", encoding="utf-8")
    done = play(page, tmp_path)
    assert done.returncode != 0
    assert "page.md:2: kill -TERM $PPID; sleep 600 went on until" in done.stdout


def test_page_is_one_program_with_files_output_and_await(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(WHOLE, encoding="utf-8")
    done = play(page, tmp_path)
    assert done.returncode == 0, done.stdout


def test_expected_output_matches_whole_lines_except_for_dots() -> None:
    assert matches("a … c\n…\nd", "a b c\nx\ny\nd\n")
    assert matches("a  \n", "a\n")
    assert not matches("a …", "a b\nc")
    assert not matches("a", "b")
    assert not matches("", "b")


def test_commands_include_their_own_line_and_output() -> None:
    block = Block(language="console", options=(), text="$ a\nx\n$ b \\\n  c\n$ d\n", line=5)
    assert list(commands(block)) == [(5, "a", "x\n"), (7, "b \\\n  c", ""), (9, "d", "")]


def test_unclosed_fence_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\n", encoding="utf-8")
    with pytest.raises(ValueError, match="never closed"):
        read_page(page)


def play(
    page: Path, folder: Path, variables: Mapping[str, str] | None = None, limit_s: float = LIMIT_S
) -> subprocess.CompletedProcess[str]:
    bin_folder = Path(sys.executable).parent
    env = {
        name: value
        for name, value in os.environ.items()
        if name in {"LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT"}
    }
    env |= {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "LOGNAME": "ada",
        "USER": "ada",
        "PYTHONUNBUFFERED": "1",  # as on a terminal
        "TERM": "dumb",
        "COLUMNS": "200",
        "HEADWAY_ZONE": "UTC",
        **(variables or {}),
    }
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.docs.play", str(page)],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.terminate()  # it stops everything that the page started, and reports where it was
        try:
            printed, _ = process.communicate(timeout=ENDING_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, printed)
