"""Telephone numbers: E.164, as every provider takes them."""

from __future__ import annotations

import re

from headway.core.errors import InvalidValue

_E164 = re.compile(r"\+[1-9][0-9]{6,14}", re.ASCII)


def check_phone(what: str, text: str) -> str:
    """Lets a telephone number pass that is written in full.

    Args:
        what: whose number it is, for the message.
        text: `+`, then 7 to 15 digits, the country's first; no spaces.

    Returns:
        The number.

    Raises:
        InvalidValue: it is not written so.

    Source:
        ITU-T E.164.
    """
    if _E164.fullmatch(text) is None:
        message = f"{what} is {text[:40]!r}, which is no number in E.164"
        raise InvalidValue(message, hint="write + and the country, then the digits: +14155550100")
    return text
