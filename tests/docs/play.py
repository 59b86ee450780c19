"""Plays one page: writes its files, runs its Python and its commands, compares their output.

    python -m tests.docs.play PAGE

The blocks of a page are played in order:

* `python` is run. All blocks of a page share one namespace, and top-level `await` is allowed.
* `python file=NAME` (or any language) is written to NAME in the working directory.
* `text output` after a `python` block is the expected output of that block.
* `console` contains commands after `$ `, each followed by its expected output; without any, the
  output is not compared. All commands of a page share one shell, and each must exit with 0.
* `toml` and `json` must be readable. `norun` leaves a block to the other tests.

In expected output, `…` matches any text within a line, and a line of just `…` matches any lines.
The number of spaces between words is ignored.
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
    """The page says something other than what happens."""


class Shell:
    """One shell for all commands of a page, so that they share variables and the directory."""

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
        """Run a command.

        Returns:
            Its exit status, and its output on both streams.
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
        """Close the shell, once everything that it started has finished."""
        self.process.communicate()

    def kill(self) -> None:
        """Kill the shell and everything that it started, at once."""
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
        """Play all blocks, in order."""
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
        """Write a file."""
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def run_python(self, block: Block) -> None:
        """Run a block, with the page's own line numbers."""
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
        result = eval(code, self.names)  # noqa: S307  (the code of the page is under test)
        if inspect.iscoroutine(result):
            self.loop.run_until_complete(result)

    def run_commands(self, block: Block) -> None:
        """Run the commands of a console block."""
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
        """Repeat a command that ran out of its `timeout`, as on a busy machine, with longer ones.

        A worker that is restarted continues with the waiting jobs, so the outputs are concatenated.
        """
        limit = re.match(r"timeout (\d+) ", command)
        for factor in (4, 20) if limit else ():
            if limit is None or matches(expected, printed):
                break
            _, more = self.shell.run(f"timeout {factor * int(limit[1])} {command[limit.end() :]}")
            printed += more
        return printed

    def compare(self, expected: str, printed: str, line: int) -> None:
        """Raise Mismatch if the output differs from the page."""
        if not matches(expected, printed):
            message = f"{self.where(line)}: expected\n{expected}\nbut this was printed:\n{printed}"
            raise Mismatch(message)

    def where(self, line: int) -> str:
        """Return a place in the page, as `page:line`."""
        return f"{self.page.name}:{line}"


def commands(block: Block) -> Iterator[tuple[int, str, str]]:
    """Split a console block into its commands.

    Yields:
        Line, command and expected output of each; a command continues after a backslash.
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
    """Return whether a text matches the expected one; the number of spaces is ignored."""
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
    """Play the page that is named on the command line, in the working directory."""
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
        # Processes that the page started may wait for commands that will never come.
        player.shell.kill()
        raise
    finally:
        player.loop.close()


if __name__ == "__main__":
    main()
