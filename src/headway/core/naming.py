"""Names, templates that name gates and keys by a job's arguments, and whole numbers in texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache

from headway.core.errors import InvalidValue

MAX_NAME = 512
"""Maximum length, in characters, of the name of a lane, tenant, kind, gate, key or subject."""
MAX_NOTE = 80_000
"""Maximum length, in characters, of a reason or label that a caller passes.

Even with every character escaped, a reason of this length fits into the arguments of a follow-up.
"""

ALWAYS_KNOWN = frozenset({"tenant", "lane", "kind"})
"""Placeholders with few values: a gate with no other placeholders is shared."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_STRAY = re.compile(r"[{}]")


def check_name(what: str, name: object, *, empty: bool = False) -> str:
    """Validate a name, and return it unchanged.

    Args:
        what: the subject of the error message.
        name: text of 1 to 512 characters without NUL or lone surrogates.

    Raises:
        InvalidValue: the name is not such a text.
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
    # Nearly all names are such texts, and each job has four: one call less for each.
    return name if name.isascii() and "\0" not in name else check_text(what, name)


def check_text(what: str, text: str) -> str:
    """Validate a text that a store compares, and return it unchanged.

    Raises:
        InvalidValue: it contains NUL or a lone surrogate, which not every store can hold.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            message = f"{what} {text!r} is not valid Unicode"
            raise InvalidValue(message, hint="it contains a lone surrogate") from None
    if "\0" in text:
        message = f"{what} {text!r} contains NUL"
        raise InvalidValue(message, hint="remove the NUL character")
    return text


def check_note(what: str, text: object) -> str:
    """Validate a text for people, such as a reason, and return it unchanged.

    Raises:
        InvalidValue: it is not text, is too long, or contains NUL or a lone surrogate.
    """
    if not isinstance(text, str):
        message = f"{what} must be text, not {type(text).__name__}"
        raise InvalidValue(message)
    if len(text) > MAX_NOTE:
        message = f"{what} has {len(text)} characters"
        raise InvalidValue(message, hint=f"at most {MAX_NOTE}")
    return check_text(what, text)


def check_host(name: str) -> str:
    """Validate that a name can be looked up, and return it unchanged; it may be empty.

    Raises:
        InvalidValue: it cannot; resolving it would raise a bare UnicodeError.
    """
    try:
        name.encode("idna")
    except UnicodeError:
        message = f"{name[:80]!r} is not the name of a host"
        raise InvalidValue(message, hint="each part has 1 to 63 characters") from None
    return name


def check_choice(what: str, value: object, choices: Sequence[str]) -> None:
    """Validate a value that is one of a few.

    Raises:
        InvalidValue: it is not one of them.
    """
    if value not in choices:
        message = f"{what} is {value!r:.40}"
        raise InvalidValue(message, hint=f"use {' or '.join(choices)}")


def check_flag(what: str, value: object) -> bool:
    """Return a flag: a store could not read back a value of another type that it was given.

    Raises:
        InvalidValue: it is not True or False.
    """
    if isinstance(value, bool):
        return value
    message = f"{what} is {value!r:.40}"
    raise InvalidValue(message, hint="use True or False")


@lru_cache(maxsize=4096)
def placeholders(template: str) -> tuple[str, ...]:
    """Return the names of a template's placeholders, each once, in order of appearance.

    Args:
        template: text such as `customer:{phone}`.

    Raises:
        InvalidValue: the text contains a brace outside a placeholder.
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

    Values are inserted literally; placeholders in them are not resolved.

    Args:
        values: the arguments, including `tenant`, `lane` and `kind`.
        keep: placeholders to leave unresolved.
        what: what the template names, for error messages.

    Raises:
        InvalidValue: an argument is missing or is not text or a whole number, or the result is not
            a valid name.
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


def counted(number: int | str, one: str, many: str = "") -> str:
    """Return a number with its noun, as "1 job" or "2 jobs".

    Args:
        number: how many there are, or that as text, such as "1,000 or more".
        one: what follows 1.
        many: what follows any other number (default: `one` and an s).
    """
    return f"{number} {one if str(number) == '1' else many or f'{one}s'}"


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", *, most: int = 1) -> str:
    """Return a hint for an unknown name, such as "did you mean calls?".

    Args:
        otherwise: the hint if no known name is similar.
        most: maximum number of suggestions.
    """
    # Comparing long texts is slow, and the name may come from a request.
    near = get_close_matches(name[:MAX_NAME], list(known), n=most)
    return f"did you mean {' or '.join(near)}?" if near else otherwise


def whole_number(text: str, digits: int = 9) -> int | None:
    """Return the number that a text consists of; None for any other text.

    Args:
        digits: maximum number of decimal digits; to parse a long text would take long.
    """
    usable = text.isascii() and text.isdigit() and len(text) <= digits
    return int(text) if usable else None


def read_whole(what: str, text: str, *, least: int = 0, digits: int = 9) -> int:
    """Parse a whole number of at most this many digits.

    Args:
        what: the subject of the error message.

    Raises:
        InvalidValue: the text is not such a number, or the number is below the least.
    """
    number = whole_number(text, digits)
    if number is None or number < least:
        message = f"{what} is {text!r:.80}"
        raise InvalidValue(message, hint=f"it must be a whole number, {least} or more")
    return number
