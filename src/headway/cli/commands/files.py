"""`headway export`, `headway import`: jobs as JSON Lines, and jobs created from any such file."""

from __future__ import annotations

import os
import sys
import uuid
from codecs import BOM_UTF8
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import msgspec
import typer

from headway.cli.app_file import open_app
from headway.cli.command import command, new_command
from headway.cli.failures import NO, NO_SPACE
from headway.cli.options import AppName, JobFilter
from headway.cli.progress import Meter, progress
from headway.cli.session import CommandSession
from headway.cli.text import printable_json, to_json
from headway.contract.operate import Acted, ActRequest, Verb
from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.core.check import LATEST
from headway.core.errors import CallerError, HeadwayError, InvalidValue, StoreFull
from headway.core.job import MAX_BATCH, NewJob
from headway.core.naming import check_note, counted, did_you_mean
from headway.runtime.app import App
from headway.runtime.inserting import CancelledJob, Importer
from headway.runtime.records import job_record

FORMAT = 1
"""Increases when a field is removed or changes its meaning, but not when one is added."""

_Write = Callable[[bytes], object]


async def write_export(
    store: Store, wanted: JobFilter, write: _Write, meter: Meter, *, trail: bool
) -> int:
    """Write the jobs that match a filter, with their runs; return their number."""
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
def output(path: Path | None, *, force: bool) -> Generator[_Write]:
    """Open the output; a file appears under its name only once it is complete.

    Args:
        path: The file; None for standard output.

    Raises:
        InvalidValue: the file exists, or cannot be written.
        StoreFull: the device is full; no file was created.
    """
    if path is None:
        stream = typer.get_binary_stream("stdout")
        # It may be a terminal.
        yield lambda line: stream.write(printable_json(line.decode()).encode())
        stream.flush()
        return
    if path.exists() and not force:
        message = f"the file {path} exists"
        raise InvalidValue(message, hint="choose another, or pass --force to overwrite it")
    if path.exists() and not path.is_file():
        message = f"{path} is not a regular file"
        raise InvalidValue(message, hint="leave out --out, and redirect standard output to it")
    # Not from tempfile, whose files only their owner can read.
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        with part.open("xb") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        message = f"the file {path} cannot be written: {error.strerror}"
        if error.errno in NO_SPACE:
            raise StoreFull(message, hint="free some space, or choose another device") from None
        raise InvalidValue(message, hint="choose a place you can write to") from None
    finally:
        with suppress(OSError):
            part.unlink()


app = new_command()


@command(app)
def export(
    session: CommandSession,
    wanted: JobFilter,
    out: Annotated[
        Path | None, typer.Option(help="Output file. Defaults to standard output.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    trail: Annotated[
        bool, typer.Option(help="Include the trail of each job: moves, notes and signals.")
    ] = True,
) -> None:
    """Export jobs with their runs and trails as JSON Lines: a header, then one job per line.

    Jobs are written once each, in order of arrival. docs/reference/export.md describes the format,
    which is the same with and without --json. Each page of a thousand jobs is a snapshot: jobs that
    change during the export appear as they were when their page was read.
    """
    with output(out, force=force) as write, progress(session.terminal, "export jobs") as meter:
        count = session.with_store(
            lambda store: write_export(store, wanted, write, meter, trail=trail)
        )
    if out is not None:
        session.terminal.remark(f"{counted(count, 'job')} written to {out}")


_HINT = "return a list of jobs from kind.make(...), or yield them; async functions do not work"


STEP_BYTES = 8_000_000
"""Size of the arguments above which a step gets fewer rows: a server limits a request."""


@dataclass(frozen=True, order=True, slots=True)
class RefusedRow:
    """A row that created no jobs.

    Attributes:
        line: Its line number in the file, from 1.
    """

    line: int
    error: str


@dataclass(kw_only=True, slots=True)
class _Tally:
    """The result of an import.

    Attributes:
        rows: Number of rows read, including refused ones, but not empty lines.
        existing: Number of jobs whose id or key already existed.
        cancelled: Number of jobs that were cancelled right after they were created.
        refused: Rows that created nothing, in the order of the file.
    """

    rows: int = 0
    created: int = 0
    existing: int = 0
    cancelled: int = 0
    refused: list[RefusedRow] = field(default_factory=list[RefusedRow])


class _Row(NamedTuple):
    """A row's jobs, and the reasons of those that are to be cancelled, by id."""

    line: int
    jobs: list[NewJob]
    cancelled: dict[str, str]


class Import:
    """One import.

    Args:
        author: Author of cancellations in the trail.
        on_refused: Called with each refused row as soon as it is found.
    """

    def __init__(
        self,
        store: Store,
        importer: Importer,
        author: str,
        on_refused: Callable[[RefusedRow], None],
    ) -> None:
        self._store = store
        self._importer = importer
        self._author = author
        self._on_refused = on_refused
        self._waiting: list[_Row] = []
        self.tally = _Tally()

    async def run(self, lines: Iterable[bytes], meter: Meter) -> _Tally:
        """Import all rows, up to 1000 jobs or 8 MB per step; a row's jobs are created atomically.

        After an error of the store, `tally` has the result so far. Repeating an import does not
        duplicate jobs to which the importer gives a key or an id.
        """
        size = jobs = held = 0
        for number, line in enumerate(lines, start=1):
            size += len(line)
            row = self._read(number, line)
            if row is None:
                continue
            large = sum(len(job.args) for job in row.jobs)
            if jobs + len(row.jobs) > MAX_BATCH or held + large > STEP_BYTES:
                await self._flush()
                jobs = held = 0
            self._waiting.append(row)
            jobs += len(row.jobs)
            held += large
            meter(size)
        await self._flush()
        self.tally.refused.sort()
        return self.tally

    def _read(self, number: int, line: bytes) -> _Row | None:
        if number == 1:
            line = line.removeprefix(BOM_UTF8)
        if not line.strip():
            return None
        self.tally.rows += 1
        try:
            made = self._importer(msgspec.json.decode(line))
            if _is_many(made):
                return _row(number, list(made))
        except HeadwayError as error:
            self._refuse(number, str(error))
        except msgspec.DecodeError as error:
            self._refuse(number, f"this is not valid JSON: {error}")
        except Exception as error:  # noqa: BLE001  (a user's importer may raise anything)
            self._refuse(number, f"{type(error).__name__}: {error}")
        else:
            # Every other row would be refused for the same reason.
            if isinstance(made, Coroutine):
                made.close()
            message = (
                f"line {number}: the importer returned {type(made).__name__}, not a list of jobs"
            )
            raise InvalidValue(message, hint=_HINT)
        return None

    def _refuse(self, line: int, error: str) -> None:
        refused = RefusedRow(line, error)
        self.tally.refused.append(refused)
        self._on_refused(refused)

    async def _flush(self) -> None:
        rows, self._waiting = self._waiting, []
        try:
            await self._enqueue(rows)
        except CallerError:
            # One row made the whole step fail: find it by enqueuing each row separately.
            for row in rows:
                try:
                    await self._enqueue([row])
                except CallerError as error:
                    self._refuse(row.line, str(error))

    async def _enqueue(self, rows: list[_Row]) -> None:
        jobs = [job for row in rows for job in row.jobs]
        if not jobs:
            return
        reasons = {job: why for row in rows for job, why in row.cancelled.items()}
        # No worker must start jobs that are to be cancelled, even if this process dies before.
        replies = await self._store.enqueue(
            [job.changed(due_at=LATEST) if job.id in reasons else job for job in jobs]
        )
        self.tally.created += sum(reply.created for reply in replies)
        self.tally.existing += sum(not reply.created for reply in replies)
        by_reason: dict[str, list[str]] = {}
        for job, reply in zip(jobs, replies, strict=True):
            if job.id in reasons:
                by_reason.setdefault(reasons[job.id], []).append(reply.id)
        for reason, ids in by_reason.items():
            await self._cancel(ids, reason)

    async def _cancel(self, ids: list[str], reason: str) -> None:
        request = ActRequest(
            request=str(uuid.uuid4()),
            ids=tuple(ids),
            verb=Verb.CANCEL,
            author=self._author,
            reason=reason,
        )
        replies = await self._store.act(request)
        self.tally.cancelled += sum(one.answer in {Acted.DONE, Acted.ASKED} for one in replies)


def _is_many(made: object) -> bool:
    """Return whether an importer returned an iterable of jobs, not a text or a record."""
    return isinstance(made, Iterable) and not isinstance(made, str | bytes | Mapping)


def _row(number: int, made: Sequence[object]) -> _Row:
    jobs: list[NewJob] = []
    cancelled: dict[str, str] = {}
    for one in made:
        job = one.job if isinstance(one, CancelledJob) else one
        if isinstance(one, CancelledJob):
            # Refused by the store only after the jobs are created, it would leave them waiting.
            cancelled[one.job.id] = check_note("the reason of a CancelledJob", one.reason)
        if isinstance(job, NewJob):
            jobs.append(job)
        else:
            message = f"the importer returned a {type(one).__name__}"
            hint = "each item must be a job from kind.make(...), or a CancelledJob"
            raise InvalidValue(message, hint=hint)
    if len(jobs) > MAX_BATCH:
        message = f"one row creates {len(jobs)} jobs"
        raise InvalidValue(message, hint=f"at most {MAX_BATCH}")
    return _Row(number, jobs, cancelled)


import_app = new_command()


@command(import_app, "import")
def import_(
    session: CommandSession,
    file: Annotated[str, typer.Argument(help="JSON Lines file, or - for standard input.")],
    app_name: AppName = None,
    named: Annotated[
        str | None,
        typer.Option("--as", metavar="IMPORTER", help="Importer of the App to use."),
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Exit with 0 even if rows were refused.")
    ] = False,
    author: Annotated[
        str | None,
        typer.Option(
            help="Author of cancellations. Defaults to HEADWAY_AUTHOR or your login name."
        ),
    ] = None,
) -> None:
    """Create jobs from a file, using an importer declared with @app.importer(name).

    A row that is not valid JSON, or that the importer or the store refuses, is reported with its
    line number, and the import continues. Exits with 1 if any row was refused.

    With --json: {"rows", "created", "existing", "cancelled", "refused": [{"line", "error"}]}.

    Raises:
        Exit: with code 1, rows were refused.
    """
    opened = open_app(session, app_name)
    importer = _importer(opened, named)
    who = session.author(author)

    def print_refused(refused: RefusedRow) -> None:
        if not session.json:
            session.terminal.remark(f"line {refused.line}: {refused.error}", "yellow")

    with (
        _opened(file) as (stream, size),
        progress(session.terminal, "import", size, counted=False) as meter,
    ):

        async def work(store: Store) -> _Tally:
            return await _import(
                session, Import(store, importer, who, print_refused), stream, meter
            )

        tally = session.with_app(opened, work)
    _print_tally(session, tally)
    if tally.refused and not lenient:
        raise typer.Exit(NO)


async def _import(session: CommandSession, work: Import, stream: BinaryIO, meter: Meter) -> _Tally:
    try:
        return await work.run(stream, meter)
    except BaseException:
        # The error that follows does not say how much has been done.
        made = counted(work.tally.created, "job was", "jobs were")
        session.terminal.remark(f"stopped after {made} made")
        raise


def _importer(opened: App, named: str | None) -> Importer:
    importers = opened.importers
    known = ", ".join(importers)
    if not importers:
        message = "the App has no importers"
        raise InvalidValue(message, hint="pass --app with an App that has an @app.importer(name)")
    if named is not None:
        if named not in importers:
            message = f"the App has no importer {named!r}"
            raise InvalidValue(message, hint=did_you_mean(named, importers, f"it has {known}"))
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


def _print_tally(session: CommandSession, tally: _Tally) -> None:
    if session.json:
        session.terminal.document(tally)
        return
    parts = [
        counted(tally.rows, "row"),
        f"{counted(tally.created, 'job')} made",
        f"{tally.existing} there already" if tally.existing else "",
        f"{tally.cancelled} cancelled" if tally.cancelled else "",
        f"{counted(len(tally.refused), 'row')} refused" if tally.refused else "",
    ]
    session.terminal.line(", ".join(filter(None, parts)))
