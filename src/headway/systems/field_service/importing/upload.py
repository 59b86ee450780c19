"""An upload: a body of CSV, kept in a file while it is read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from tempfile import SpooledTemporaryFile
from typing import IO

from fastapi import Request

from headway.core.errors import InvalidValue
from headway.server.replies.error_members import add_members

IN_MEMORY = 1024 * 1024
"""Bytes; what is longer lies on the device."""

CSV_BODY = {
    "requestBody": {
        "required": True,
        "content": {"text/csv": {"schema": {"type": "string"}}},
    }
}
"""For the description of a route that takes one."""


@asynccontextmanager
async def uploaded(request: Request) -> AsyncGenerator[IO[bytes]]:
    """The body of a request as a file, at its beginning; gone after the block.

    Raises:
        InvalidValue: it is of another type than text/csv; told as 415.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "text/csv":
        message = f"the body is {media[:80] or 'of no type'}, and an import is text/csv"
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
