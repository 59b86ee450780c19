"""Names, and names as templates over a job's arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache

from headway.core.errors import InvalidValue

MAX_NAME = 512
"""The longest name, in characters, of a lane, tenant, kind, gate, key or subject."""

ALWAYS_KNOWN = frozenset({"tenant", "lane", "kind"})
"""Placeholders with few values: a gate named by these alone is shared."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_STRAY = re.compile(r"[{}]")


def check_name(what: str, name: object, *, empty: bool = False) -> str:
    """Accept a usable name.

    Args:
        name: any text of 1 to 512 characters without NUL or lone surrogates.

    Returns:
        The name, unchanged.

    Raises:
        InvalidValue: it is no such text.
    """
    if not isinstance(name, str):
        message = f"{what} must be text, not {type(name).__name__}"
        raise InvalidValue(message)
    if not name and not empty:
        message = f"{what} is empty"
        raise InvalidValue(message, hint="it needs at least one character")
    if len(name) > MAX_NAME:
        message = f"{what} has {len(name)} characters"
        raise InvalidValue(message, hint=f"at most {MAX_NAME}")
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            message = f"{what} {name!r} is not valid Unicode"
            raise InvalidValue(message, hint="it holds a lone surrogate") from None
    if "\0" in name:
        message = f"{what} {name!r} contains NUL"
        raise InvalidValue(message, hint="remove the NUL character")
    return name


@lru_cache(maxsize=4096)
def placeholders(template: str) -> tuple[str, ...]:
    """The placeholder names of a template, in order of appearance.

    Args:
        template: text such as `customer:{phone}`.

    Returns:
        Each name once.

    Raises:
        InvalidValue: a brace stands outside `{name}`.
    """
    rest = _PLACEHOLDER.sub("", template)
    if _STRAY.search(rest):
        message = f"the name {template!r} contains a brace outside a placeholder"
        raise InvalidValue(message, hint="write placeholders as {argument}")
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(template)))


def resolve(
    template: str,
    values: Mapping[str, object],
    *,
    keep: frozenset[str] = frozenset(),
    what: str = "gate",
) -> str:
    """Fill a template with a job's arguments.

    Values are inserted as they are and never read as templates again.

    Args:
        values: the arguments, with `tenant`, `lane` and `kind` among them.
        keep: placeholders to leave as they stand.

    Raises:
        InvalidValue: an argument is missing or not a plain value, or the result is not a name.
    """
    if not placeholders(template):
        return template

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name in keep:
            return match[0]
        if name not in values:
            message = (
                f"the {what} {template!r} needs the argument {name!r}, which the job does not have"
            )
            raise InvalidValue(message, hint=f"pass it, or correct the {what}'s name")
        value = values[name]
        if value is None or not isinstance(value, str | int):
            message = f"the {what} {template!r} cannot be named by {name}={value!r}"
            raise InvalidValue(message, hint=f"only text and whole numbers can name a {what}")
        return str(value)

    return check_name(what, _PLACEHOLDER.sub(fill, template))


def did_you_mean(
    name: str, known: Iterable[str], otherwise: str = "", *, before: str = "", most: int = 1
) -> str:
    """Return a hint for a name that is not known.

    Args:
        otherwise: the hint if none of them is near.

    Returns:
        Such as "did you mean calls?".
    """
    # To compare costs time by length, and a request may have brought the name.
    near = get_close_matches(name[:MAX_NAME], list(known), n=most)
    return f"did you mean {' or '.join(before + one for one in near)}?" if near else otherwise
