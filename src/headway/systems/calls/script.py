"""What is said in a call: the template's words, with what the lead carries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from headway.core.errors import InvalidValue
from headway.systems.calls.template import Template
from headway.systems.telephony.voice import Fetch, Say, Script

LONGEST_SAY = 4_000
"""Characters that are said in a call, with all that a lead carries."""

_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def check_words(say: str) -> None:
    """Refuses words with a brace that opens or ends no placeholder: it would be read out.

    Raises:
        InvalidValue: there is one; nothing was written.
    """
    rest = _FIELD.sub("", say)
    if "{" in rest or "}" in rest:
        message = "say: a brace in it belongs to no placeholder"
        raise InvalidValue(message, hint="a placeholder is {name}: letters, digits and _")


def script_of(template: Template, payload: object) -> Script:
    """What happens in a call.

    Args:
        template: says it.
        payload: what the lead carries; text and numbers of it can be said.

    Returns:
        The words, each `{name}` replaced by what the payload has there, or by nothing.
    """
    if template.fetch is not None:
        return Fetch(url=template.fetch)
    known: Mapping[str, object] = {}
    if isinstance(payload, dict):
        known = cast("Mapping[str, object]", payload)

    def said(match: re.Match[str]) -> str:
        value = known.get(match[1])
        return str(value) if isinstance(value, str | int | float) else ""

    return Say(text=_FIELD.sub(said, template.say))
