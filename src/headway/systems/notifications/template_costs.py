"""What the work of a message template costs, and the budget of one rendering.

Everything that takes time in proportion to a text or a list is charged to the budget before it is
done, by what it reads and creates. The same template and data always cost the same.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

MOST_WORK = 250_000
"""Maximum units of work of one rendering; the slowest unit took 5 microseconds when measured."""
MOST_WIDTH = 9_999
"""Maximum width, precision or indentation."""
MOST_DEPTH = 100
"""Maximum nesting of values that are compared, shown or given to a filter."""
CHARACTERS = 32
"""Characters read per unit."""
FACTOR = 8
"""Characters of an argument for which each unit of the value is charged once more."""
_LONG_NUMBER = 1_000
"""Units of a number beyond 64 bits: such numbers can be chosen to collide in sets and keys."""
SLOW: Mapping[str, int] = {
    **dict.fromkeys(("dictsort", "groupby", "sort", "tojson", "unique", "urlencode", "xmlattr"), 4),
    "wordwrap": 16,
    **dict.fromkeys(("pprint", "striptags", "urlize"), 64),
}
"""Filters that take more time per character or item, with the factor."""
WIDTHS = frozenset(
    {
        *("batch", "center", "expandtabs", "indent", "ljust"),
        *("rjust", "round", "slice", "tojson", "zfill"),
    }
)
"""Filters and methods whose result or time grows with a number among their arguments."""
_METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset(
        {
            *("capitalize", "casefold", "center", "count", "endswith", "expandtabs"),
            *("find", "format", "format_map", "index", "isalnum", "isalpha"),
            *("isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric"),
            *("isprintable", "isspace", "istitle", "isupper", "join", "ljust"),
            *("lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace"),
            *("rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip"),
            *("split", "splitlines", "startswith", "strip", "striptags", "swapcase"),
            *("title", "unescape", "upper", "zfill"),
        }
    ),
    dict: frozenset({"copy", "get", "items", "keys", "values"}),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index"}),
    int: frozenset({"bit_length", "conjugate"}),
    float: frozenset({"as_integer_ratio", "conjugate", "hex", "is_integer"}),
}
"""Methods of data that a template may call; the cost of each is known."""
_QUICK_METHODS = frozenset({"get", "items", "keys", "values"})
_EMPTY: dict[str, str] = {}
_SIZED: tuple[type[Any], ...] = (
    *(list, tuple, dict),
    *(type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items())),
)
_CONTAINERS: tuple[type[Any], ...] = (*_SIZED, Namespace)
_FORMAT = re.compile(
    r"%(?P<key>\([^()]*\))?[#0\- +]*(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d+)?)?"
)
_NESTED_KEY = re.compile(r"%\([^)]*\(")


class _Budget:
    """The remaining work of a rendering."""

    def __init__(self) -> None:
        self.left = MOST_WORK

    def spend(self, units: int) -> None:
        """Charge units to the budget.

        Raises:
            SecurityError: the budget is exceeded, and stays so.
        """
        self.left -= units
        if self.left < 0:
            message = (
                f"it is more work than one message may take ({MOST_WORK} units): "
                "loops in loops, or long texts and lists used over and over"
            )
            raise SecurityError(message)


_BUDGET: ContextVar[_Budget] = ContextVar("budget of a rendering")


@contextmanager
def limited_work() -> Generator[None]:
    """Give everything that is rendered in this context one budget."""
    token = _BUDGET.set(_Budget())
    try:
        yield
    finally:
        _BUDGET.reset(token)


def spend(units: int) -> None:
    """Charge units to the budget of the current rendering; see `_Budget.spend`."""
    _BUDGET.get().spend(units)


def weigh(value: object) -> int:
    """Return the cost of reading a whole value; charge the cost of counting its parts.

    A list that occurs in it several times counts several times, as when it is written out.

    Raises:
        SecurityError: the value is nested too deep, or counting it exceeds the budget.
    """
    if not is_container(value):
        return scalar(value)
    budget = _BUDGET.get()
    total, limit = 1, budget.left
    stack = [iter(_parts(value))]
    while stack:
        for part in stack[-1]:
            total += scalar(part)
            if is_container(part):
                if len(stack) >= MOST_DEPTH:
                    message = f"a value nested more than {MOST_DEPTH} deep is refused"
                    raise SecurityError(message)
                stack.append(iter(_parts(part)))
                break
            if total > limit:
                break
        else:
            stack.pop()
        if total > limit:
            break
    budget.spend(total // FACTOR)
    return total


def scalar(value: object) -> int:
    """Return the cost of reading a value that is no container."""
    if isinstance(value, str):
        return 1 + len(value) // CHARACTERS
    if isinstance(value, int):
        bits = value.bit_length()
        return 1 if bits <= 64 else _LONG_NUMBER + (bits // 64) ** 2
    if isinstance(value, range):
        return 1 + len(value) * max(scalar(value.start), scalar(value.stop))
    return 1


def is_container(value: object) -> bool:
    """Return whether a value consists of other values."""
    return isinstance(value, _CONTAINERS)


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, Namespace):
        return _parts(object.__getattribute__(value, "_Namespace__attrs"))
    if isinstance(value, dict):
        return _of_dict(cast("dict[object, object]", value))
    return cast("Iterable[object]", value)


def _of_dict(value: Mapping[object, object]) -> Iterator[object]:
    for key, one in value.items():
        yield key
        yield one


def touch(value: object) -> int:
    """Return the cost of iterating over a value's items, or of copying it."""
    if isinstance(value, _SIZED):
        return 1 + len(cast("Sequence[object]", value))
    return scalar(value)


def factor(args: Iterable[object], *, widths: bool) -> int:
    """Return the factor by which the other arguments multiply the cost of a value.

    Args:
        widths: whether numbers among them are widths.

    Raises:
        SecurityError: a width is too large.
    """
    total = 1
    for one in args:
        if isinstance(one, str):
            total += len(one) // FACTOR
        elif isinstance(one, int | float) and widths:
            if abs(one) > MOST_WIDTH:
                message = f"a width or precision above {MOST_WIDTH} is refused"
                raise SecurityError(message)
            total += int(abs(one)) // FACTOR
        elif isinstance(one, range) or is_container(one):
            total += weigh(one)
        elif isinstance(one, int):
            total += scalar(one) - 1
    return total


def spend_compared(name: str, left: object, right: object) -> None:
    """Charge for a comparison, by the name of its operator in Jinja2."""
    if name in {"in", "notin"}:
        if isinstance(right, str):
            spend(scalar(right) + weigh(left))
        elif isinstance(right, dict):
            spend(weigh(left))
        else:
            spend(touch(right) * weigh(left))
    elif is_container(left) and is_container(right):
        spend(weigh(left) + weigh(right))
    else:
        spend(min(scalar(left), scalar(right)))


def check_format(text: str) -> int:
    """Return the cost of the widths in a format for `%`.

    Raises:
        SecurityError: a width is too large, or is not known in advance.
    """
    if _NESTED_KEY.search(text):
        message = "a parenthesis in a name after % is refused"
        raise SecurityError(message)
    total = 0
    for found in _FORMAT.finditer(text):
        for one in (found["width"], found["precision"]):
            if one == "*":
                message = "a width given as * is refused"
                raise SecurityError(message)
            total += width(one or "")
    return total // FACTOR


def width(digits: str) -> int:
    """Read a width that is written in a template.

    Raises:
        SecurityError: the width is too large.
    """
    if len(digits.lstrip("0")) > len(str(MOST_WIDTH)):
        message = f"a width or precision above {MOST_WIDTH} is refused"
        raise SecurityError(message)
    return int(digits or 0)


def cost_of_method(owner: object, name: str, given: Sequence[object]) -> int:
    """Return the cost of calling a method of data.

    Raises:
        SecurityError: templates may not call it.
    """
    allowed = next((names for one, names in _METHODS.items() if isinstance(owner, one)), ())
    if name not in allowed:
        message = f"the method {name} of {type(owner).__name__} is refused"
        raise SecurityError(message)
    if name in _QUICK_METHODS:
        return sum(map(weigh, given), 1)
    slow = SLOW.get(name, 1)
    return slow * weigh(owner) * factor(given, widths=name in WIDTHS)
