"""Reads docstrings with Google sections."""

from __future__ import annotations

import inspect
import re

_ITEM = re.compile(r"^(\*{0,2}\w+)(?: \([^)]*\))?: *(.*)$")


def summary(thing: object) -> str:
    """Return the first sentence of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def items(thing: object, section: str) -> dict[str, str]:
    """Return the items of a section of a docstring.

    Args:
        thing: object that has the docstring.
        section: such as "Args" or "Attributes".

    Returns:
        Each item's text on one line, by its name, in order.
    """
    lines = (inspect.getdoc(thing) or "").splitlines()
    if f"{section}:" not in lines:
        return {}
    found: dict[str, str] = {}
    name = ""
    for line in lines[lines.index(f"{section}:") + 1 :]:
        if line and not line.startswith(" "):
            break
        match = _ITEM.match(line[4:]) if not line.startswith("     ") else None
        if match:
            name = match[1]
            found[name] = match[2]
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return found
