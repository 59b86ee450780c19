"""Versions of records, as HTTP tells them: so that nobody undoes another's change unseen."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header

from headway.core.errors import InvalidValue, RevisionConflict

_TAG = re.compile(r'(?:W/)?"(\d{1,9})"', re.ASCII)

IfVersion = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description='The version that you know, as the ETag told it: `"3"`; if the record has '
        "another by now, nothing is changed and the reply is 409.",
        examples=['"3"'],
    ),
]


def version_tag(version: int) -> dict[str, str]:
    """The headers that tell a record's version."""
    return {"ETag": f'"{version}"'}


def check_version(what: str, version: int, if_match: str | None) -> None:
    """Lets a change pass that knows the record as it is, or does not say what it knows.

    Args:
        what: the record, for the message.
        version: of the record now.
        if_match: the header.

    Raises:
        RevisionConflict: somebody changed it meanwhile.
        InvalidValue: the header is no version.
    """
    if if_match is None or if_match.strip() == "*":
        return
    found = _TAG.fullmatch(if_match.strip())
    if found is None:
        message = "If-Match is no version of a record"
        raise InvalidValue(message, hint='as the ETag said it: "3"')
    if int(found[1]) != version:
        message = f"{what} is at version {version}, not {found[1]}"
        raise RevisionConflict(message, hint="read it again, and change what you find")
