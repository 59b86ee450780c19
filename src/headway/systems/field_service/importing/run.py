"""The run of an import: the whole file, or nothing of it; or the good rows, if that is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import IO, Generic, Protocol, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from headway.core.errors import InvalidState, InvalidValue
from headway.server.replies.error_members import add_members
from headway.systems.directory.database import Directory
from headway.systems.field_service.importing.report import Count, ImportReport
from headway.systems.field_service.importing.sheet import Fields, Sheet

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Numbered(Generic[Row]):
    """A row that could be read.

    Attributes:
        number: as a spreadsheet numbers it.
        row: what it says.
    """

    number: int
    row: Row


class Importer(Protocol[Row]):
    """What is imported.

    Attributes:
        needed: columns that must be there.
        known: further ones that may be.
    """

    needed: Sequence[str]
    known: Sequence[str]

    def read(self, fields: Fields) -> Row:
        """Reads a row.

        Raises:
            InvalidValue: it is unusable.
            ValidationError: so are some of its fields.
        """
        ...

    def marks(self, row: Row) -> Sequence[tuple[str, str]]:
        """What no other row of the file may have: what it is, and its value."""
        ...

    async def write(
        self, session: AsyncSession, rows: Sequence[Numbered[Row]], count: Count
    ) -> None:
        """Writes rows, and counts what became of them; one that cannot be is counted as refused.

        Args:
            session: in a transaction.
            rows: of one batch.
            count: of the import.
        """
        ...


async def run_import(
    directory: Directory, file: IO[bytes], importer: Importer[Row], *, partial: bool
) -> ImportReport:
    """Imports a file.

    Args:
        directory: where to.
        file: of CSV.
        importer: what is imported.
        partial: whether the good rows are written though others are not.

    Returns:
        What became of it.

    Raises:
        InvalidValue: the file is unusable; or rows are and it is not partial: each of them is
            told, up to a hundred. Nothing was written.
        InvalidState: somebody else wrote the same records at the same moment; what was counted
            before is written if it is partial, else nothing.
        StoreUnavailable: the directory cannot be reached; the same holds.
    """
    count = Count()
    try:
        if partial:
            async for batch in _batches(file, importer, count):
                async with directory.change() as session:
                    await importer.write(session, batch, count)
            return count.report()
        # First without a transaction: others should not wait while a file is looked through.
        async for _ in _batches(file, importer, count):
            pass
        _check_whole(count)
        count = Count()
        async with directory.change() as session:
            async for batch in _batches(file, importer, count):
                await importer.write(session, batch, count)
            _check_whole(count)
    except IntegrityError:
        message = "somebody else wrote some of these at the same moment"
        raise InvalidState(message, hint="import the file again") from None
    return count.report()


def _check_whole(count: Count) -> None:
    """Lets an import pass in which nothing is wrong.

    Raises:
        InvalidValue: something is.
    """
    if not count.refused:
        return
    told = count.report().faults
    first = "; ".join(f"row {one.row}: {one.what}" for one in told[:3])
    message = f"{count.refused} of {count.rows} rows are unusable: {first}"
    error = InvalidValue(message, hint="nothing was written; ?partial=true writes the others")
    errors = [{"where": f"row {one.row}", "what": one.what} for one in told]
    add_members(error, rows=count.rows, refused=count.refused, errors=errors)
    raise error


async def _batches(
    file: IO[bytes], importer: Importer[Row], count: Count
) -> AsyncGenerator[list[Numbered[Row]]]:
    """The rows that can be read; the others are counted as refused."""
    sheet = Sheet(file, needed=importer.needed, known=importer.known)
    seen: dict[tuple[str, str], int] = {}

    def read_on() -> list[Numbered[Row]] | None:
        raw = sheet.batch()
        if raw is None:
            return None
        good: list[Numbered[Row]] = []
        for number, fields in raw:
            count.rows += 1
            try:
                row = _read(importer, fields)
                _check_marks(importer, row, number, seen)
            except InvalidValue as error:
                count.refuse(number, str(error))
            else:
                good.append(Numbered(number, row))
        return good

    # In a thread: the server goes on answering.
    while (batch := await asyncio.to_thread(read_on)) is not None:
        if batch:
            yield batch


def _read(importer: Importer[Row], fields: Fields | str) -> Row:
    """What a row says.

    Raises:
        InvalidValue: it is unusable.
    """
    if isinstance(fields, str):
        raise InvalidValue(fields)
    try:
        return importer.read(fields)
    except ValidationError as error:
        told = error.errors(include_url=False, include_context=False, include_input=False)
        raise InvalidValue("; ".join(map(_told, told))) from None


def _told(fault: ErrorDetails) -> str:
    where = ".".join(map(str, fault["loc"]))
    return f"{where} is missing" if fault["type"] == "missing" else f"{where}: {fault['msg']}"


def _check_marks(
    importer: Importer[Row], row: Row, number: int, seen: dict[tuple[str, str], int]
) -> None:
    """Lets a row pass that no earlier one is like.

    Raises:
        InvalidValue: one is.
    """
    marks = importer.marks(row)
    for mark in marks:
        if mark in seen:
            what, value = mark
            message = f"row {seen[mark]} has the {what} {value!r} too"
            raise InvalidValue(message)
    seen.update(dict.fromkeys(marks, number))
