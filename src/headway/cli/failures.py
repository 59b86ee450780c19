"""Failures: one line on standard error with a hint, and an exit code; a traceback only on request.

HEADWAY_DEBUG requests tracebacks.
"""

from __future__ import annotations

import os
import sys
import traceback
from errno import EDQUOT, EFBIG, ENOSPC

import typer

from headway.cli.text import printable, printable_json, to_json
from headway.core.errors import (
    AccessError,
    CallerError,
    HandlerError,
    HeadwayError,
    InvariantBroken,
    OwnershipError,
    ProviderError,
    StoreError,
)

DEBUG = "HEADWAY_DEBUG"
NO_SPACE = frozenset({ENOSPC, EDQUOT, EFBIG})
"""Errors of a device, quota or file size that is used up."""


def report(error: Exception, *, json: bool) -> int:
    """Print an error to standard error, and return the exit code.

    Args:
        error: An error of Headway or of the command line's parser; any other is a bug.
        json: Print one JSON document `{"error": {"code", "message", "hint"}}` instead of a line.
    """
    if os.environ.get(DEBUG):
        traceback.print_exception(error, file=sys.stderr)
    code, message, hint = _described(error)
    if json:
        # A path that is not UTF-8 has lone surrogates, which JSON has no form for.
        shown = message.encode(errors="backslashreplace").decode()
        document = {"error": {"code": code, "message": shown, "hint": hint}}
        typer.echo(printable_json(to_json(document).decode()).encode(), err=True)
    else:
        line = f"{message} ({hint})" if hint else message
        typer.echo(f"headway: {printable(line)}", err=True)
    if isinstance(error, HeadwayError):
        return exit_code(error)
    return CALLER if isinstance(error, typer.TyperException) else BUG


def _described(error: Exception) -> tuple[str, str, str]:
    if isinstance(error, HeadwayError):
        return error.code, error.message, error.hint
    if isinstance(error, typer.TyperException):
        return "usage", _usage(error), _where_to_look(error)
    message = f"unexpected {type(error).__name__}: {error}"
    return "bug", message, f"a bug in Headway; set {DEBUG}=1 to see where"


def _usage(error: typer.TyperException) -> str:
    text = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    if error.__cause__ is not None:
        # The parser, too, imports it only when it refuses a value.
        from pydantic import ValidationError  # noqa: PLC0415

        if isinstance(error.__cause__, ValidationError):
            value = f"{error.__cause__.errors()[0]['input']!r:.80}"
            text = text.partition(", unable to parse")[0].replace("Input", value, 1)
    return text[:1].lower() + text[1:]


def _where_to_look(error: typer.TyperException) -> str:
    path = getattr(getattr(error, "ctx", None), "command_path", "headway")
    if error.format_message() in _NO_LIST:
        # Every group lists when it is called without one of its commands.
        return f"{path} lists them"
    return f"see {path} --help"


_NO_LIST = ("No such command 'list'.", "No such command 'ls'.")

DONE = 0
"""The command succeeded."""
NO = 1
"""The command ran, but found differences or problems, or refused rows or jobs."""
CALLER = 2
"""The call is invalid and must be corrected, including invalid options and arguments."""
BUG = 70
"""A bug in Headway; please report it."""
INTERRUPTED = 130
"""Stopped by Ctrl-C."""

BY_BRANCH: dict[type[HeadwayError], int] = {
    CallerError: CALLER,
    AccessError: CALLER,
    OwnershipError: 3,
    StoreError: 4,
    HandlerError: 5,
    ProviderError: 6,
    InvariantBroken: BUG,
}
"""The exit code of each branch of the error tree."""


def exit_code(error: HeadwayError) -> int:
    """Return the exit code of an error's branch of the tree."""
    for branch, code in BY_BRANCH.items():
        if isinstance(error, branch):
            return code
    return NO
