"""`headway import`: makes jobs of the rows of a foreign file."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from headway.cli.app_file import open_app
from headway.cli.command import command, new_command
from headway.cli.failures import NO
from headway.cli.import_file import Import, Refused, Tally
from headway.cli.progress import Meter, progress
from headway.cli.session import Session
from headway.contract.store import Store
from headway.core.errors import InvalidValue
from headway.runtime.app import App
from headway.runtime.inserting import Importer

app = new_command()


@command(app, "import")
def import_(
    session: Session,
    file: Annotated[str, typer.Argument(help="JSON Lines; - for standard input.")],
    app_name: Annotated[
        str | None,
        typer.Option("--app", metavar="APP", help="The file or module[:name] of your App."),
    ] = None,
    named: Annotated[
        str | None,
        typer.Option("--as", metavar="IMPORTER", help="Which of the App's importers to use."),
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Exit with 0 though rows were refused.")
    ] = False,
    author: Annotated[
        str | None, typer.Option(help="The author of cancellations; else your login name.")
    ] = None,
) -> None:
    """Make jobs of a file, by an importer that the App declares with @app.importer(name).

    A row that is no JSON, that the importer refuses, or whose jobs the store refuses is reported
    with its line number, and the others go on. The exit code is 1 if there was one.

    With --json: {"rows", "created", "existing", "cancelled", "refused": [{"line", "error"}]}.

    Raises:
        Exit: with code 1, rows were refused.
    """
    opened = open_app(session, app_name)
    importer = _importer(opened, named)
    who = session.author(author)

    def print_refused(refused: Refused) -> None:
        if not session.json:
            session.terminal.remark(f"line {refused.line}: {refused.error}", "yellow")

    with (
        _opened(file) as (stream, size),
        progress(session.terminal, "import", size, counted=False) as meter,
    ):

        async def work(store: Store) -> Tally:
            return await _import(
                session, Import(store, importer, who, print_refused), stream, meter
            )

        tally = session.with_app(opened, work)
    _print_tally(session, tally)
    if tally.refused and not lenient:
        raise typer.Exit(NO)


async def _import(session: Session, work: Import, stream: BinaryIO, meter: Meter) -> Tally:
    try:
        return await work.run(stream, meter)
    except BaseException:
        # The error that comes next will not say what is done already.
        session.terminal.remark(f"stopped after {work.tally.created} jobs were made")
        raise


def _importer(opened: App, named: str | None) -> Importer:
    importers = opened.importers
    known = ", ".join(importers) or "none; declare one with @app.importer(name)"
    if named is not None:
        if named not in importers:
            message = f"the App has no importer {named!r}"
            raise InvalidValue(message, hint=f"it has {known}")
        return importers[named]
    if len(importers) != 1:
        message = f"the App has {len(importers)} importers"
        raise InvalidValue(message, hint=f"choose one with --as: {known}")
    return next(iter(importers.values()))


@contextmanager
def _opened(file: str) -> Generator[tuple[BinaryIO, int | None]]:
    if file == "-":
        yield sys.stdin.buffer, None
        return
    path = Path(file)
    try:
        with path.open("rb") as stream:
            yield stream, path.stat().st_size
    except OSError as error:
        message = f"the file {file} cannot be read: {error.strerror}"
        raise InvalidValue(message, hint="check its name and permissions") from None


def _print_tally(session: Session, tally: Tally) -> None:
    if session.json:
        refused = [{"line": one.line, "error": one.error} for one in tally.refused]
        session.terminal.document(
            {
                "rows": tally.rows,
                "created": tally.created,
                "existing": tally.existing,
                "cancelled": tally.cancelled,
                "refused": refused,
            }
        )
        return
    parts = [
        f"{tally.rows} rows",
        f"{tally.created} jobs made",
        f"{tally.existing} there already" if tally.existing else "",
        f"{tally.cancelled} cancelled" if tally.cancelled else "",
        f"{len(tally.refused)} rows refused" if tally.refused else "",
    ]
    session.terminal.line(", ".join(filter(None, parts)))
