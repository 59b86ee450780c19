"""The options of every command, before or after its name, and `headway version`."""

from __future__ import annotations

import platform
from typing import Annotated, NamedTuple

import typer

from headway.cli.text import to_json
from headway.core.errors import InvalidValue


def _not_empty(context: typer.Context, url: str | None) -> str | None:
    # An unset variable in a script would select the default store.
    if url is not None and not url.strip() and not context.resilient_parsing:
        message = "--store is empty"
        raise InvalidValue(message, hint="pass a URL such as sqlite:///headway.db, or omit --store")
    return url


STORE = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        callback=_not_empty,
        help="Store URL (default: HEADWAY_STORE, headway.toml, or sqlite:///headway.db).",
        show_default=False,
    ),
]
JSON = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document; errors go to stderr as JSON."),
]

VERSION = Annotated[bool, typer.Option("--version", help="Show the version and exit.")]


class GlobalOptions(NamedTuple):
    """The values of the options that every command takes."""

    store: str | None = None
    json: bool = False

    def merged(self, *, store: str | None, json: bool) -> GlobalOptions:
        """Return these options merged with later ones; a later store takes precedence."""
        return GlobalOptions(store=store or self.store, json=json or self.json)


def show_version(*, json: bool) -> None:
    """Print the versions of Headway and of Python, as a line or as a JSON document."""
    # Imported here because it is slow, and only this command needs it.
    from importlib.metadata import version  # noqa: PLC0415

    versions = {"headway": version("headway"), "python": platform.python_version()}
    if json:
        typer.echo(to_json(versions))
    else:
        typer.echo(f"headway {versions['headway']} (Python {versions['python']})")


# Not made by `new_command`, whose imports would take longer than the command itself.
app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def version(context: typer.Context, store: STORE = None, json: JSON = False) -> None:
    """Show the version of Headway and of the Python that runs it."""
    options = context.obj if isinstance(context.obj, GlobalOptions) else GlobalOptions()
    show_version(json=options.merged(store=store, json=json).json)
