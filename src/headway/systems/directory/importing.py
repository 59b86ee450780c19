"""CSV imports: read in batches, validated row by row, written completely or in part.

The first row names the columns, in any order and case.
"""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import IO, NoReturn

import msgspec
from fastapi import Request
from pydantic import Field, ValidationError
from sqlalchemy.exc import IntegrityError

from headway.core.errors import InvalidState, InvalidValue
from headway.runtime.faults import faults, sentence
from headway.server.bodies.base import QueryModel
from headway.server.caller import Caller
from headway.server.problems import add_members
from headway.server.service import Service
from headway.systems.directory.records import ImportReport, New, R, Records, RowFields


class ImportParams(QueryModel):
    """How to import."""

    partial: bool = Field(
        default=False, description="Write the valid rows even if others are invalid."
    )


MOST_ROWS = 250_000
"""Maximum number of rows in an import."""
MOST_BYTES = 10_000
"""Maximum length of a line, in bytes."""
_BATCH = 500


def json_of(text: str) -> object:
    """Parse a column as JSON.

    Raises:
        InvalidValue: the text is not JSON.
    """
    try:
        return msgspec.json.decode(text)
    except ValueError as error:
        message = f"{text[:40]!r} is not JSON: {error}"
        raise InvalidValue(message) from None


def split_by(separators: str) -> Callable[[str], list[str]]:
    """Return a parser that splits a column at a pattern and drops empty parts."""
    pattern = re.compile(separators)
    return lambda text: [one for one in map(str.strip, pattern.split(text)) if one]


class ImportFile:
    """The rows of a file, read in batches."""

    def __init__(self, file: IO[bytes], *, needed: Sequence[str], known: Sequence[str]) -> None:
        """Read the header.

        Args:
            file: CSV in UTF-8, read from its start.

        Raises:
            InvalidValue: the header is not CSV in UTF-8, or a column is missing, repeated or
                unknown.
        """
        file.seek(0)
        lines = _lines(file)
        header = next(lines, "")
        # In many locales, spreadsheets separate columns with semicolons.
        mark = ";" if header.count(";") > header.count(",") else ","
        heads = csv.reader([header], delimiter=mark)
        try:
            self._columns = [one.strip().casefold() for names in heads for one in names]
        except csv.Error as error:
            _refuse(error)
        _check_columns(self._columns, needed, known)
        self._rows = enumerate(csv.reader(lines, delimiter=mark, strict=True), 2)

    def batch(self) -> list[tuple[int, RowFields | str]] | None:
        """Return the next rows, each with its row number, and its fields or an error message.

        Returns:
            At most 500 rows, without blank ones; None at the end.

        Raises:
            InvalidValue: the file has too many rows, or is not CSV in UTF-8.
        """
        try:
            read = list(islice(self._rows, _BATCH))
        except csv.Error as error:
            _refuse(error)
        if not read:
            return None
        if read[-1][0] > MOST_ROWS + 1:
            message = f"the file has more than {MOST_ROWS} rows"
            raise InvalidValue(message, hint="import it in parts")
        return [(number, self._fields(row)) for number, row in read if any(map(str.strip, row))]

    def _fields(self, row: list[str]) -> RowFields | str:
        if len(row) != len(self._columns):
            return f"the row has {len(row)} fields, but the header has {len(self._columns)}"
        return {name: one.strip() for name, one in zip(self._columns, row, strict=True)}


def _refuse(error: csv.Error) -> NoReturn:
    message = f"the file is not valid CSV: {error}"
    hint = "quote fields that contain commas or quotes; end lines with a line feed"
    raise InvalidValue(message, hint=hint) from None


def _lines(file: IO[bytes]) -> Iterator[str]:
    """Yield the lines of a file.

    Raises:
        InvalidValue: the file is not UTF-8, contains a NUL, or has a line that is too long.
    """
    coding = "utf-8-sig"
    try:
        while line := file.readline(MOST_BYTES + 1):
            if len(line) > MOST_BYTES:
                message = f"a line of the file has more than {MOST_BYTES} bytes"
                raise InvalidValue(message, hint="is it CSV?")
            if b"\0" in line:
                message = "the file contains a NUL"
                raise InvalidValue(message, hint="is it CSV in UTF-8?")
            yield line.decode(coding)
            coding = "utf-8"
    except UnicodeDecodeError:
        message = "the file is not UTF-8"
        raise InvalidValue(message, hint="save it as CSV UTF-8") from None


def _check_columns(columns: Sequence[str], needed: Sequence[str], known: Sequence[str]) -> None:
    listed = ", ".join((*needed, *known))
    for wrong, what in (
        ([one for one in needed if one not in columns], "lacks the"),
        ([one for one in columns if one not in {*needed, *known}], "has the unknown"),
        ([one for one in set(columns) if columns.count(one) > 1], "repeats the"),
    ):
        if wrong:
            message = f"the header {what} column {wrong[0][:80]!r}"
            raise InvalidValue(message, hint=f"the first row names the columns: {listed}")


IN_MEMORY = 1024 * 1024
"""Maximum number of bytes of a body kept in memory; a longer body is written to a file."""

CSV_BODY = {
    "requestBody": {
        "required": True,
        "content": {"text/csv": {"schema": {"type": "string"}}},
    }
}
"""The request body of an import, for OpenAPI."""


@asynccontextmanager
async def uploaded(request: Request) -> AsyncGenerator[IO[bytes]]:
    """Yield the body of a request as a temporary file, positioned at its start.

    Raises:
        InvalidValue: the content type is not text/csv; the status is 415.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "text/csv":
        message = f"the body is {media[:80] or 'of no type'}, but an import must be text/csv"
        error = InvalidValue(
            message, hint="curl -H 'Content-Type: text/csv' --data-binary @technicians.csv"
        )
        add_members(error, status=415)
        raise error
    with SpooledTemporaryFile(max_size=IN_MEMORY) as file:
        async for chunk in request.stream():
            file.write(chunk)
        file.seek(0)
        yield file


async def run_import(
    service: Service, caller: Caller, file: IO[bytes], records: Records[R, New], *, partial: bool
) -> ImportReport:
    """Import a file.

    Args:
        partial: whether valid rows are written even if others are not valid.

    Raises:
        InvalidValue: the file is not valid; or rows are not, and `partial` is not set: up to a
            hundred are reported.
        InvalidState: another request wrote the same records at the same time, or a row cannot be
            written now and `partial` is not set.
        StoreUnavailable: the directory cannot be reached. After any of these errors, earlier
            batches are written if `partial` is set; otherwise nothing is.
    """
    report, at = ImportReport(), service.timing.wall_at()
    try:
        if partial:
            async for batch in _batches(service, file, records, report):
                await _write_possible(service, caller, records, batch, report, at)
            return report
        # Validate without a transaction first, so that no lock is held meanwhile.
        async for _ in _batches(service, file, records, report):
            pass
        _check_none_refused(report)
        report = ImportReport()
        async with records.changing(service, caller) as session:
            async for batch in _batches(service, file, records, report):
                await records.write(session, batch, report, at)
            _check_none_refused(report)
    except IntegrityError:
        message = "some of these were written by another request at the same time"
        raise InvalidState(message, hint="import the file again") from None
    return report


async def _write_possible(
    service: Service,
    caller: Caller,
    records: Records[R, New],
    rows: Sequence[tuple[int, New]],
    report: ImportReport,
    at: int,
) -> None:
    """Write rows, and refuse those that cannot be written now; these are found by halving."""
    written = ImportReport()
    try:
        async with records.changing(service, caller) as session:
            await records.write(session, rows, written, at)
    except InvalidState as error:
        if len(rows) == 1:
            report.refuse(rows[0][0], str(error))
            return
        half = len(rows) // 2
        for part in (rows[:half], rows[half:]):
            await _write_possible(service, caller, records, part, report, at)
    else:
        report.add(written)


def _check_none_refused(report: ImportReport) -> None:
    if not report.refused:
        return
    first = "; ".join(f"row {one.row}: {one.what}" for one in report.faults[:3])
    message = f"{report.refused} of {report.rows} rows are not valid: {first}"
    error = InvalidValue(message, hint="nothing was written; ?partial=true writes the others")
    errors = [{"where": f"row {one.row}", "what": one.what} for one in report.faults]
    add_members(error, rows=report.rows, refused=report.refused, errors=errors)
    raise error


async def _batches(
    service: Service, file: IO[bytes], records: Records[R, New], report: ImportReport
) -> AsyncGenerator[list[tuple[int, New]]]:
    """Yield the valid rows; count the others as refused."""
    file_rows = ImportFile(file, needed=records.needed, known=records.known)
    seen: dict[tuple[str, str], int] = {}

    def read_batch() -> list[tuple[int, New]] | None:
        raw = file_rows.batch()
        if raw is None:
            return None
        good: list[tuple[int, New]] = []
        for number, fields in raw:
            report.rows += 1
            try:
                row = _parse_row(records, fields)
                records.check(service, row.values)
                _check_repeated(records, row, number, seen)
            except InvalidValue as error:
                report.refuse(number, str(error))
            else:
                good.append((number, row))
        return good

    # In a thread, so that the event loop is not blocked.
    while (batch := await asyncio.to_thread(read_batch)) is not None:
        if batch:
            yield batch


def _parse_row(records: Records[R, New], fields: RowFields | str) -> New:
    if isinstance(fields, str):
        raise InvalidValue(fields)
    try:
        return records.read(fields)
    except ValidationError as error:
        found = faults(error.errors(include_url=False, include_input=False))
        raise InvalidValue("; ".join(sentence([one]) for one in found)) from None


def _check_repeated(
    records: Records[R, New], row: New, number: int, seen: dict[tuple[str, str], int]
) -> None:
    values = records.unique_values(row)
    for pair in values:
        if pair in seen:
            what, value = pair
            message = f"row {seen[pair]} has the {what} {value!r} too"
            raise InvalidValue(message)
    seen.update(dict.fromkeys(values, number))
