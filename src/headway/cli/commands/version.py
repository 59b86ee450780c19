"""`headway version`: which Headway this is."""

from __future__ import annotations

import typer

from headway.cli.everywhere import JSON, STORE, GlobalOptions, show_version

# Not made by `new_command`: what that needs takes longer to load than this takes to answer.
app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def version(context: typer.Context, store: STORE = None, json: JSON = False) -> None:
    """Show the version of Headway and of the Python that runs it."""
    options = context.obj if isinstance(context.obj, GlobalOptions) else GlobalOptions()
    show_version(json=options.also(store=store, json=json).json)
