"""Plays one page: writes its files, runs its Python and its commands, compares what they print.

    python -m tests.docs.play PAGE

What the blocks of a page mean, in the order in which they stand:

* `python` is run; all blocks of a page share one namespace, and `await` may stand at the top.
* `python file=NAME` (or any language) is written to NAME in the working directory.
* `text output` after a `python` block is what that block prints.
* `console` holds commands after `$ `, each with what it prints; of one without output, nothing is
  compared. All commands of a page share one shell, and each must end with status 0.
* `toml` and `json` must be readable. `norun` leaves a block to the other tests.

In what is expected, `…` stands for any text within a line, and a line of `…` alone for any lines;
how many spaces stand between words does not count.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

from tests.docs.pages import Block, Page, read_page

ANY = "…"
END = "end-of-command"


class Mismatch(Exception):
    """A page says something else than what happens."""


class Shell:
    """One shell for all commands of a page, so that they share variables and the folder."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            process_group=0,
        )

    def run(self, command: str) -> tuple[int, str]:
        """Runs a command.

        Returns:
            Its exit status, and what it printed on both outputs.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{{ {command}\n}} </dev/null; printf '\\n{END} %s\\n' $?\n")
        self.process.stdin.flush()
        printed: list[str] = []
        for line in self.process.stdout:
            if line.startswith(f"{END} "):
                return int(line.split()[1]), "".join(printed)
            printed.append(line)
        return self.process.wait(), "".join(printed)

    def close(self) -> None:
        """Ends the shell, once all that it started has ended."""
        self.process.communicate()

    def kill(self) -> None:
        """Ends the shell and all that it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


class Player:
    """Plays the blocks of one page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.loop = asyncio.new_event_loop()
        self.shell = Shell()
        self.printed: str | None = None
        self.at = page.name

    def play(self) -> None:
        """Plays all of them, in order."""
        for block in self.page.blocks:
            if "norun" in block.options:
                continue
            if block.file is not None:
                self.write(block.file, block)
            elif block.language == "python":
                self.run_python(block)
            elif block.language == "console":
                self.run_commands(block)
            elif block.language == "text" and "output" in block.options:
                self.compare(block.text, self.printed or "", block.line)
            elif block.language == "json":
                json.loads(block.text)
            elif block.language == "toml":
                tomllib.loads(block.text)

    def write(self, name: str, block: Block) -> None:
        """Writes a file."""
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def run_python(self, block: Block) -> None:
        """Runs a block with the page's own line numbers."""
        code = compile(
            "\n" * (block.line - 1) + block.text,
            str(self.page.path),
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self._execute(code)
        self.printed = out.getvalue()

    def _execute(self, code: CodeType) -> None:
        result = eval(code, self.names)  # noqa: S307  (the page's own code is what is tested)
        if inspect.iscoroutine(result):
            self.loop.run_until_complete(result)

    def run_commands(self, block: Block) -> None:
        """Runs the commands of a console block."""
        for line, command, expected in commands(block):
            self.at = f"{self.where(line)}: {command}"
            status, printed = self.shell.run(command)
            if status:
                message = f"{self.at} ended with {status}:\n{printed}"
                raise Mismatch(message)
            if expected:
                printed = self.given_longer(command, expected, printed)
                self.compare(expected, printed, line)

    def given_longer(self, command: str, expected: str, printed: str) -> str:
        """Repeats a command that ran out of its `timeout`, as on a busy machine, with longer ones.

        A worker that is started again goes on with what waits, so its output is added up.
        """
        limit = re.match(r"timeout (\d+) ", command)
        for factor in (4, 20) if limit else ():
            if limit is None or matches(expected, printed):
                break
            _, more = self.shell.run(f"timeout {factor * int(limit[1])} {command[limit.end() :]}")
            printed += more
        return printed

    def compare(self, expected: str, printed: str, line: int) -> None:
        """Lets what was printed pass if it is what the page says."""
        if not matches(expected, printed):
            message = f"{self.where(line)}: expected\n{expected}\nbut this was printed:\n{printed}"
            raise Mismatch(message)

    def where(self, line: int) -> str:
        """A place in the page."""
        return f"{self.page.name}:{line}"


def commands(block: Block) -> Iterator[tuple[int, str, str]]:
    """The commands of a console block.

    Yields:
        Line, command and expected output of each; a command goes on after a backslash.
    """
    line, command, expected = 0, "", ""
    for number, text in enumerate(block.text.splitlines(), block.line):
        if text.startswith("$ "):
            if command:
                yield line, command, expected
            line, command, expected = number, text[2:], ""
        elif command.endswith("\\"):
            command += "\n" + text
        else:
            expected += text + "\n"
    if command:
        yield line, command, expected


def matches(expected: str, printed: str) -> bool:
    """Whether a text is what was expected; how many spaces stand between words does not count."""
    parts: list[str] = []
    for line in _lines(expected):
        if line == ANY:
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append("[^\n]*?".join(re.escape(one.strip()) for one in line.split(ANY)) + r"\n")
    given = "".join(f"{line}\n" for line in _lines(printed))
    return re.fullmatch("".join(parts), given) is not None


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip("\n").splitlines()]


def main() -> None:
    """Plays the page that is named on the command line, in the working directory."""
    sys.path.insert(0, os.getcwd())
    player = Player(read_page(Path(sys.argv[1])))

    def stopped(_signal: int, _frame: FrameType | None) -> None:
        message = f"{player.at} went on until the page was stopped"
        raise Mismatch(message)

    signal.signal(signal.SIGTERM, stopped)
    try:
        player.play()
        player.shell.close()
    except BaseException:
        # What the page has started waits for commands that will not come.
        player.shell.kill()
        raise
    finally:
        player.loop.close()


if __name__ == "__main__":
    main()
