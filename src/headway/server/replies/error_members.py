"""What an error's reply says beside what its class says."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from headway.core.errors import HeadwayError, UnknownEntry, UnknownGate, UnknownJob


def add_members(error: HeadwayError, **members: object) -> None:
    """Gives the problem that will be told of an error further members; `status` is the reply's."""
    vars(error)["problem"] = {**vars(error).get("problem", {}), **members}


@contextmanager
def named_by_body() -> Generator[None]:
    """What is unknown within the block was named by the body, not by the path: no 404 but a 422.

    Raises:
        UnknownGate: as it was.
        UnknownEntry: as it was.
        UnknownJob: as it was.
    """
    try:
        yield
    except (UnknownGate, UnknownEntry, UnknownJob) as error:
        add_members(error, status=422)
        raise
