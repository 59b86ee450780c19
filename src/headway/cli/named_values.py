"""Arguments of a job on the command line: name=value pairs, or a JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from headway.cli.json_text import to_json
from headway.core.errors import InvalidValue


def read_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Read name=value pairs.

    Args:
        pairs: each with a name before its first `=`.

    Returns:
        The values by name, in the order given, as they were written.

    Raises:
        InvalidValue: one has no name or no `=`, or a name comes twice.
    """
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            message = f"the argument {pair[:80]!r} is no name=value"
            raise InvalidValue(message, hint="as phone=+15550100 urgent=true")
        if name in values:
            message = f"the argument {name!r} is given twice"
            raise InvalidValue(message, hint="give it once")
        values[name] = text
    return values


def read_values(texts: Mapping[str, str]) -> dict[str, object]:
    """Read values by name: what is JSON counts as that, all else is text.

    `phone='"0155"'` is text that looks like a number.

    Raises:
        InvalidValue: one is not valid Unicode.
    """
    return {name: _value(name, text) for name, text in texts.items()}


def read_object(option: str, text: str) -> bytes:
    """Reads a JSON object.

    Args:
        option: where it was given, for the message.
        text: JSON.

    Returns:
        The object on one line, UTF-8.

    Raises:
        InvalidValue: it is no JSON, or no object.
    """
    try:
        found: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        message = f"{option} is no JSON: {error}"
        raise InvalidValue(message, hint=_OBJECT) from None
    if not isinstance(found, dict):
        message = f"{option} is no JSON object"
        raise InvalidValue(message, hint=_OBJECT)
    return to_json(cast("dict[str, object]", found))


_OBJECT = """as '{"phone": "+15550100"}'"""


def _value(name: str, text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    except UnicodeEncodeError:
        message = f"the argument {name!r} is no valid Unicode"
        raise InvalidValue(message, hint="write it in UTF-8") from None
