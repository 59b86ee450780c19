"""The fields of a body: what is said to a server, without what says nothing."""

from __future__ import annotations

from collections.abc import Mapping

Fields = dict[str, object]


def filled(fields: Mapping[str, object]) -> Fields:
    """The fields that say something: neither None nor the empty text."""
    return {name: value for name, value in fields.items() if value not in ("", None)}
