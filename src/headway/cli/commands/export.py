"""`headway export`: jobs with their whole record, as docs/reference/export.md describes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from headway.cli.command import command, new_command
from headway.cli.options import JobFilter
from headway.cli.progress import Meter, progress
from headway.cli.session import Session
from headway.cli.text import to_json
from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.core.errors import InvalidValue, StoreFull
from headway.runtime.records import job_record

FORMAT = 1
"""Grows when a field changes its meaning or goes; a new field does not count."""

Write = Callable[[bytes], object]


async def write_export(
    store: Store, wanted: JobFilter, write: Write, meter: Meter, *, trail: bool
) -> int:
    """Write the jobs that fit a filter, with their runs.

    Args:
        write: takes one line after another.

    Returns:
        How many jobs were written.
    """
    stats = await store.read(StatsQuery())
    header = {
        "format": "headway-export",
        "version": FORMAT,
        "exported_at": stats.now,
        "store": stats.identity,
        "epoch": stats.epoch,
    }
    write(to_json(header) + b"\n")
    count = 0
    total = sum(stats.counts.values())
    async for page in wanted.pages(store, runs=True, trail=trail):
        for job in page.rows:
            fields = job_record(job)
            if not trail:
                del fields["trail"]
            write(to_json(fields) + b"\n")
        count += len(page.rows)
        meter(count, max(total, count))
    return count


@contextmanager
def output(path: Path | None, *, force: bool) -> Generator[Write]:
    """Where the lines go. A file appears under its name only when it is whole.

    Args:
        path: the file; None for standard output.

    Raises:
        InvalidValue: the file exists, or cannot be made.
        StoreFull: the device has no room; no file was made.
    """
    if path is None:
        stream = typer.get_binary_stream("stdout")
        yield stream.write
        stream.flush()
        return
    if path.exists() and not force:
        message = f"the file {path} exists"
        raise InvalidValue(message, hint="choose another, or give --force to replace it")
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file.write
            _keep(file)
        part.replace(path)
    except OSError as error:
        message = f"the file {path} cannot be written: {error.strerror}"
        if error.errno == errno.ENOSPC:
            raise StoreFull(message, hint="make room, or choose another device") from None
        raise InvalidValue(message, hint="choose a place that you may write to") from None
    finally:
        part.unlink(missing_ok=True)


def _keep(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


app = new_command()


@command(app)
def export(
    session: Session,
    wanted: JobFilter,
    out: Annotated[
        Path | None, typer.Option(help="The file to make; else standard output.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    trail: Annotated[
        bool, typer.Option(help="With each job's trail of moves, notes and signals.")
    ] = True,
) -> None:
    """Write jobs with their runs and trails as JSON Lines: a header, then one job a line.

    The order is that of arrival. The format is described in docs/reference/export.md; it is the
    same with and without --json. Each page of a thousand jobs is a snapshot, so what runs
    meanwhile is shown as it was when its page was read; every job is written once.
    """
    with output(out, force=force) as write, progress(session.terminal, "export jobs") as meter:
        count = session.with_store(
            lambda store: write_export(store, wanted, write, meter, trail=trail)
        )
    if out is not None:
        session.terminal.remark(f"{count} jobs written to {out}")
