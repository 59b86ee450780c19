"""Values of users as JSON, for the record."""

from __future__ import annotations

import msgspec

from headway.core.errors import InvalidValue, PayloadTooLarge
from headway.core.job import MAX_RESULT


def encode(what: str, value: object) -> bytes:
    """A value as JSON.

    Args:
        what: what it is, for the message.
        value: anything that JSON can carry.

    Returns:
        UTF-8.

    Raises:
        InvalidValue: JSON cannot carry it.
        PayloadTooLarge: it is above the limit.
    """
    try:
        data = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"the {what} is no value for JSON: {error}"
        raise InvalidValue(message[:400]) from None
    if len(data) > MAX_RESULT:
        message = f"the {what} has {len(data)} bytes"
        raise PayloadTooLarge(message, hint=f"at most {MAX_RESULT}; store it, keep a reference")
    return data
