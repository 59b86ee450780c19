"""Extras: parts of Headway that need packages which a plain install does not bring."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from headway.core.errors import InvalidValue


@contextmanager
def needs_extra(extra: str) -> Generator[None]:
    """Import in this block need an extra.

    Raises:
        InvalidValue: a package that it brings is not installed.
        ModuleNotFoundError: a module of Headway itself is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "headway":
            raise
        message = f"this needs the package {error.name}, which is not installed"
        raise InvalidValue(message, hint=f"pip install 'headway[{extra}]'") from None
