"""`headway version`: which Headway this is."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed_version

import typer

from headway.cli.everywhere import JSON, STORE, Told
from headway.cli.json_text import to_json

# Not made by `new_command`: what that needs takes longer to load than this takes to answer.
app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def version(context: typer.Context, store: STORE = None, json: JSON = False) -> None:
    """Tells the version of Headway and of the Python that runs it."""
    told = context.obj if isinstance(context.obj, Told) else Told()
    told = told.also(store=store, json=json)
    versions = {"headway": installed_version("headway"), "python": platform.python_version()}
    if told.json:
        typer.echo(to_json(versions))
    else:
        typer.echo(f"headway {versions['headway']} (Python {versions['python']})")
