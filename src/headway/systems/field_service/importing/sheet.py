"""A sheet: rows of CSV under a header that names the columns, in any order and any case."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, NoReturn

from headway.core.errors import InvalidValue

MOST_ROWS = 250_000
"""Of one import."""
MOST_BYTES = 10_000
"""Of one line."""
_BATCH = 500

Fields = Mapping[str, str]
"""A row: what stands in each column, without the space around it."""


class Sheet:
    """The rows of a file, read in batches."""

    def __init__(self, file: IO[bytes], *, needed: Sequence[str], known: Sequence[str]) -> None:
        """Reads the header.

        Args:
            file: UTF-8; from its beginning.
            needed: columns that must be there.
            known: further ones that may be.

        Raises:
            InvalidValue: it is no UTF-8 or no CSV, has no header, or columns that nobody knows.
        """
        file.seek(0)
        lines = _lines(file)
        header = next(lines, "")
        # Spreadsheets of many countries part columns by semicolons.
        mark = ";" if header.count(";") > header.count(",") else ","
        heads = csv.reader([header], delimiter=mark)
        try:
            self._columns = [one.strip().casefold() for names in heads for one in names]
        except csv.Error as error:
            _refuse(error)
        _check_columns(self._columns, needed, known)
        self._rows = enumerate(csv.reader(lines, delimiter=mark, strict=True), 2)

    def batch(self) -> list[tuple[int, Fields | str]] | None:
        """The next rows, each with its number; instead of the fields of one that is broken, why.

        Returns:
            At most 500, without those that are blank; None at the end.

        Raises:
            InvalidValue: the file has too many rows, is no UTF-8, or no CSV.
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

    def _fields(self, row: list[str]) -> Fields | str:
        if len(row) != len(self._columns):
            return f"it has {len(row)} fields, and the header {len(self._columns)}"
        return {name: one.strip() for name, one in zip(self._columns, row, strict=True)}


def _refuse(error: csv.Error) -> NoReturn:
    """Tells what is no CSV.

    Raises:
        InvalidValue: always.
    """
    message = f"the file is no CSV: {error}"
    hint = "quote fields that hold commas or quotes; end lines by a line feed"
    raise InvalidValue(message, hint=hint) from None


def _lines(file: IO[bytes]) -> Iterator[str]:
    """The lines of a file.

    Raises:
        InvalidValue: it is no UTF-8, or a line is too long.
    """
    coding = "utf-8-sig"
    try:
        while line := file.readline(MOST_BYTES + 1):
            if len(line) > MOST_BYTES:
                message = f"a line of the file has more than {MOST_BYTES} bytes"
                raise InvalidValue(message, hint="is it CSV?")
            if b"\0" in line:
                message = "the file holds a NUL"
                raise InvalidValue(message, hint="is it CSV in UTF-8?")
            yield line.decode(coding)
            coding = "utf-8"
    except UnicodeDecodeError:
        message = "the file is no UTF-8"
        raise InvalidValue(message, hint="save it as CSV UTF-8") from None


def _check_columns(columns: Sequence[str], needed: Sequence[str], known: Sequence[str]) -> None:
    """Lets a header pass.

    Raises:
        InvalidValue: a column lacks, comes twice, or is unknown.
    """
    listed = ", ".join((*needed, *known))
    for wrong, what in (
        ([one for one in needed if one not in columns], "lacks"),
        ([one for one in columns if one not in {*needed, *known}], "has, and nobody knows,"),
        ([one for one in set(columns) if columns.count(one) > 1], "has twice"),
    ):
        if wrong:
            message = f"the header {what} the column {wrong[0][:80]!r}"
            raise InvalidValue(message, hint=f"the first row names the columns: {listed}")
