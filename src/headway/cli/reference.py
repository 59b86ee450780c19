"""The page docs/reference/cli.md: `python -m headway.cli.reference > docs/reference/cli.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from headway.cli.failures import BUG, BY_BRANCH, CALLER, DONE, INTERRUPTED, NO
from headway.cli.main import root
from headway.cli.settings import PREFIX, Settings

WIDTH = 100

_HEAD = """\
# The `headway` command

This page is made by the command itself: `python -m headway.cli.reference`.

Every command accepts `--store` and `--json`, before or after its name. Results go to standard
output, everything else to standard error.

- **`--json`** prints one JSON document on one line. A listing is an object with its rows under a
  name and, if it is paged, a `cursor` that is `null` on the last page. Instants are integers, in
  milliseconds since 1970 UTC; durations have their unit in their name. `headway export` prints JSON
  Lines instead. Errors are printed to standard error as `{"error": {"code", "message", "hint"}}`.
- **Times** (`--due`, `--until`) are either a duration from now, such as `20m` or `1h30m`, or an
  instant with an offset, such as `2026-12-01T10:00-08:00`. "Now" is the store's time.
- **Text from jobs** is printed with control characters escaped.
- **Progress** is shown on standard error, only on a terminal.
- **Shell completion**: `headway --install-completion`.
"""


def reference() -> str:
    """Return the page: rules, exit codes, settings, and the help of every command."""
    return "\n".join([_HEAD, *_exits(), *_settings(), *_commands()])


def _exits() -> Iterator[str]:
    yield "## Exit codes\n"
    yield "| code | meaning |"
    yield "|---|---|"
    rows = [
        (DONE, "done"),
        (NO, "the command ran, but found differences, problems, or rows or jobs it had to refuse"),
        (CALLER, "invalid option or argument"),
        *((code, _branch(error)) for error, code in BY_BRANCH.items()),
        (INTERRUPTED, "stopped by Ctrl-C"),
    ]
    for code in sorted({code for code, _ in rows}):
        meanings = "; ".join(text for number, text in rows if number == code)
        yield f"| {code} | {meanings}{'; or any other bug' if code == BUG else ''} |"
    yield "\nWith `HEADWAY_DEBUG=1`, errors are printed with their traceback.\n"


def _branch(error: type[Exception]) -> str:
    first = (error.__doc__ or "").splitlines()[0].rstrip(".")
    return f"`{error.__name__}`: {first[:1].lower()}{first[1:]}"


def _settings() -> Iterator[str]:
    yield "## Settings\n"
    yield "A variable overrides the same key in `headway.toml` in the working directory (or in the"
    yield "file named by `HEADWAY_CONFIG`); an option overrides both. An empty variable counts as"
    yield "unset; an empty `--store` is refused.\n"
    yield "| variable | key | meaning | default |"
    yield "|---|---|---|---|"
    for key, field in Settings.model_fields.items():
        # A table of its own, such as `[hooks]`, is empty by default, and nothing is said of it.
        known = field.default is not None and field.default_factory is None
        default = f"`{field.default}`" if known else ""
        yield f"| `{PREFIX}{key.upper()}` | `{key}` | {field.description} | {default} |"
    yield ""


def _commands() -> Iterator[str]:
    group = cast("TyperGroup", get_command(root))
    yield "## Commands\n"
    context = typer.Context(group, info_name="headway", terminal_width=WIDTH)
    yield _block(context)
    for name in group.list_commands(context):
        loaded: Any = group.get_command(context, name)
        inner = typer.Context(loaded, info_name=name, parent=context, terminal_width=WIDTH)
        yield f"### headway {name}\n"
        yield _block(inner)
        if isinstance(loaded, TyperGroup):
            for member, command in loaded.commands.items():
                yield f"#### headway {name} {member}\n"
                yield _block(
                    typer.Context(command, info_name=member, parent=inner, terminal_width=WIDTH)
                )


def _block(context: typer.Context) -> str:
    lines = [line.rstrip() for line in context.get_help().strip().splitlines()]
    return "\n".join(["```text", *lines, "```\n"])


if __name__ == "__main__":
    typer.echo(reference(), nl=False)
