"""The `headway` command: parses, runs one command, and turns what fails into an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer
from typer.main import get_command

from headway.cli.catalogue import Catalogue
from headway.cli.failures import DONE, INTERRUPTED, report
from headway.cli.global_options import JSON, STORE, VERSION, GlobalOptions, show_version

root = typer.Typer(name="headway", cls=Catalogue, rich_markup_mode=None)


@root.callback(invoke_without_command=True)
def headway(
    context: typer.Context, store: STORE = None, json: JSON = False, version: VERSION = False
) -> None:
    """Dispatch work when it is due, within the limits that the real world sets.

    Raises:
        Exit: the version was shown.
    """
    context.obj = GlobalOptions(store=store, json=json)
    if version:
        show_version(json=json)
        raise typer.Exit(DONE)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def call(arguments: Sequence[str]) -> int:
    """Run one command.

    Returns:
        The exit code; failures have been printed on standard error.
    """
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    try:
        code = get_command(root).main(
            args=list(arguments), prog_name="headway", standalone_mode=False
        )
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  (the last boundary: nothing above it can report)
        return report(error, json="--json" in options)
    return code if isinstance(code, int) else DONE


def main() -> None:
    """The console script."""
    sys.exit(call(sys.argv[1:]))
