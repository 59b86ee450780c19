"""The sandbox of message templates: Jinja2 in which each rendering has a limited amount of work.

A rendering runs in the event loop, where it cannot be interrupted. So everything that takes time in
proportion to a loop, a text or a list is charged to a budget before it is done: each iteration of a
loop and each call of a macro by the size of its body, and each operator, comparison, filter, test
and method by what it reads and creates. The same template and data always cost the same.

Jinja2 has hooks for operators, calls and filters, but not for loops, comparisons and output. So the
parsed template is rewritten: these get a filter that charges the budget.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import update_wrapper
from types import BuiltinMethodType, MethodType
from typing import Any, cast

from jinja2 import StrictUndefined, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import (
    ImmutableSandboxedEnvironment,
    SandboxedEscapeFormatter,
    SandboxedFormatter,
)
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer
from markupsafe import Markup

MOST_WORK = 250_000
"""Maximum units of work of one rendering; the slowest unit took 5 microseconds when measured."""
MOST_PARTS = 20_000
"""Maximum parts of a parsed template (names, operators, loops): compiling them takes time."""
MOST_PRODUCT = 100_000
"""Maximum characters or items that a repetition creates."""
MOST_POWER = 1_000
"""Maximum base and exponent of a power."""
MOST_WIDTH = 9_999
"""Maximum width, precision or indentation."""
MOST_DEPTH = 100
"""Maximum nesting of values that are compared, shown or given to a filter."""

_CHARACTERS = 32
"""Characters read per unit."""
_FACTOR = 8
"""Characters of an argument for which each unit of the value is charged once more."""
_NODES = 4
"""Parts of a loop's body per unit."""
_LONG_NUMBER = 1_000
"""Units of a number beyond 64 bits: such numbers can be chosen to collide in sets and keys."""

_SPEND, _WEIGH, _TOUCH, _COMPARE = "work:spend", "work:weigh", "work:touch", "work:compare"
"""Filters of the rewritten template; the colon keeps templates from naming them."""

_CONSTANT = frozenset({"abs", "attr", "count", "d", "default", "first", "last", "length", "random"})
"""Filters that take the same time for any value."""
_ITEMS_ONLY = frozenset(
    {
        *("batch", "items", "list", "map", "reject", "rejectattr", "reverse"),
        *("select", "selectattr", "slice"),
    }
)
"""Filters that read a list's items, but not their contents."""
_SLOW: Mapping[str, int] = {
    **dict.fromkeys(("dictsort", "groupby", "sort", "tojson", "unique", "urlencode", "xmlattr"), 4),
    "wordwrap": 16,
    **dict.fromkeys(("pprint", "striptags", "urlize"), 64),
}
"""Filters that take more time per character or item, with the factor."""
_WIDTHS = frozenset(
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
_DIGITS = re.compile(r"\d+")


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


def _spend(units: int) -> None:
    _BUDGET.get().spend(units)


def _weigh(value: object) -> int:
    """Return the cost of reading a whole value; charge the cost of counting its parts.

    A list that occurs in it several times counts several times, as when it is written out.

    Raises:
        SecurityError: the value is nested too deep, or counting it exceeds the budget.
    """
    if not _is_container(value):
        return _scalar(value)
    budget = _BUDGET.get()
    total, limit = 1, budget.left
    stack = [iter(_parts(value))]
    while stack:
        for part in stack[-1]:
            total += _scalar(part)
            if _is_container(part):
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
    budget.spend(total // _FACTOR)
    return total


def _scalar(value: object) -> int:
    if isinstance(value, str):
        return 1 + len(value) // _CHARACTERS
    if isinstance(value, int):
        bits = value.bit_length()
        return 1 if bits <= 64 else _LONG_NUMBER + (bits // 64) ** 2
    if isinstance(value, range):
        return 1 + len(value) * max(_scalar(value.start), _scalar(value.stop))
    return 1


def _is_container(value: object) -> bool:
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


def _touch(value: object) -> int:
    """Return the cost of iterating over a value's items, or of copying it."""
    if isinstance(value, _SIZED):
        return 1 + len(cast("Sequence[object]", value))
    return _scalar(value)


def _factor(args: Iterable[object], *, widths: bool) -> int:
    """Return the factor by which the other arguments multiply the cost of a value.

    Args:
        widths: whether numbers among them are widths.

    Raises:
        SecurityError: a width is too large.
    """
    total = 1
    for one in args:
        if isinstance(one, str):
            total += len(one) // _FACTOR
        elif isinstance(one, int | float) and widths:
            if abs(one) > MOST_WIDTH:
                message = f"a width or precision above {MOST_WIDTH} is refused"
                raise SecurityError(message)
            total += int(abs(one)) // _FACTOR
        elif isinstance(one, range) or _is_container(one):
            total += _weigh(one)
        elif isinstance(one, int):
            total += _scalar(one) - 1
    return total


def _spend_compared(name: str, left: object, right: object) -> None:
    if name in {"in", "notin"}:
        if isinstance(right, str):
            _spend(_scalar(right) + _weigh(left))
        elif isinstance(right, dict):
            _spend(_weigh(left))
        else:
            _spend(_touch(right) * _weigh(left))
    elif _is_container(left) and _is_container(right):
        _spend(_weigh(left) + _weigh(right))
    else:
        _spend(min(_scalar(left), _scalar(right)))


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}
_COMPARING_TESTS = frozenset(
    {
        *("==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", "ge", ">="),
        *("<", "lt", "lessthan", "<=", "le", "in"),
    }
)
_READING_TESTS = frozenset({"divisibleby", "even", "lower", "odd", "upper"})


@pass_context
def _spend_filter(_: Context, units: int) -> bool:
    _spend(units)
    return True


@pass_context
def _weigh_filter(_: Context, value: object) -> object:
    _spend(_weigh(value))
    return value


@pass_context
def _touch_filter(_: Context, value: object) -> object:
    _spend(_touch(value))
    return value


@pass_context
def _compare_filter(_: Context, left: object, name: str, right: object) -> bool:
    _spend_compared(name, left, right)
    return _COMPARISONS[name](left, right)


def _paid_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that charges the budget; it returns a list if Jinja2's returns an iterator.

    Because it takes the context, Jinja2 does not evaluate it while compiling a template.
    """
    slow, widths = _SLOW.get(name, 1), name in _WIDTHS

    @pass_context
    def paid(context: Context, value: object, *args: object, **kwargs: object) -> object:
        given = (*args, *kwargs.values())
        passed = _passed(function, context)
        if name in _CONSTANT:
            _spend(1)
            return function(*passed, value, *args, **kwargs)
        units = _touch(value) if name in _ITEMS_ONLY else _weigh(value)
        if name == "format":
            units += _check_format(str(value))
        elif name == "sum" and any(map(_is_container, given)):
            units *= 1 + units // 64  # each sum is a copy
        _spend(units * slow * _factor(given, widths=widths))
        return _whole(function(*passed, value, *args, **kwargs))

    return paid


def _paid_test(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def paid(context: Context, value: object, *args: object) -> object:
        if name in _COMPARING_TESTS and args:
            _spend_compared(name, value, args[0])
        else:
            _spend(_weigh(value) * _factor(args, widths=False) if name in _READING_TESTS else 1)
        return function(*_passed(function, context), value, *args)

    return paid


def _passed(function: Callable[..., Any], context: Context) -> tuple[object, ...]:
    """Return the argument that a filter or test takes before its value, if any."""
    wants = getattr(function, "jinja_pass_arg", None)
    if wants is None:
        return ()
    found = {
        "context": context,
        "eval_context": context.eval_ctx,
        "environment": context.environment,
    }
    return (found[wants.name],)


def _whole(result: object) -> object:
    if not isinstance(result, Iterator):
        return result
    found: list[object] = []
    for one in cast("Iterator[object]", result):
        _spend(_touch(one))
        found.append(one)
    return found


def _check_format(text: str) -> int:
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
            total += _width(one or "")
    return total // _FACTOR


def _width(digits: str) -> int:
    """Read a width that is written in a template.

    Raises:
        SecurityError: the width is too large.
    """
    if len(digits.lstrip("0")) > len(str(MOST_WIDTH)):
        message = f"a width or precision above {MOST_WIDTH} is refused"
        raise SecurityError(message)
    return int(digits or 0)


class _Formatter(SandboxedFormatter):
    """Formats like `str.format`, and charges for each field."""

    def format_field(self, value: Any, format_spec: str) -> Any:  # noqa: ANN401  (as Python has it)
        _spend(_weigh(value) + sum(map(_width, _DIGITS.findall(format_spec))) // _FACTOR)
        return super().format_field(value, format_spec)


class _EscapeFormatter(_Formatter, SandboxedEscapeFormatter):
    """The same, with escaped values."""


class _Paying(NodeTransformer):
    """Rewrites a parsed template to charge for what Jinja2 has no hook for."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  (Jinja2's name)
        if node.test is not None:
            units = nodes.Const(_units([node.test]), lineno=node.lineno)
            node.test = nodes.And(_paying(units, _SPEND), node.test, lineno=node.lineno)
        return self._body(node)

    def _body(self, node: nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block) -> nodes.Node:
        units = nodes.Const(_units(node.body), lineno=node.lineno)
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_paying(units, _SPEND), lineno=node.lineno))
        return node

    visit_Macro = visit_CallBlock = visit_Block = _body  # noqa: N815  (as above)

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802  (as above)
        self.generic_visit(node)
        node.nodes = [
            one if isinstance(one, nodes.TemplateData) else _paying(one, _WEIGH)
            for one in node.nodes
        ]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802  (as above)
        self.generic_visit(node)
        node.nodes = [_paying(one, _WEIGH) for one in node.nodes]
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802  (as above)
        self.generic_visit(node)
        node.key = _paying(node.key, _WEIGH)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802  (as above)
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _paying(node.node, _TOUCH)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802  (as above)
        self.generic_visit(node)
        if len(node.ops) == 1:
            op = node.ops[0]
            name = nodes.Const(op.op, lineno=node.lineno)
            return _paying(node.expr, _COMPARE, name, op.expr)
        node.expr = _paying(node.expr, _WEIGH)
        for op in node.ops:
            op.expr = _paying(op.expr, _WEIGH)
        return node


def _paying(node: nodes.Expr, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _units(body: Iterable[nodes.Node]) -> int:
    """Return the cost of one run of a body."""
    count = sum(1 + sum(1 for _ in one.find_all(nodes.Node)) for one in body)
    return 1 + count // _NODES


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2 with immutable data, errors for missing names, and limited work.

    Templates must be rendered in `limited_work`.
    """

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, *, autoescape: bool = False) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=autoescape)
        filters = {name: _paid_filter(name, one) for name, one in self.filters.items()}
        own = {_SPEND: _spend_filter, _WEIGH: _weigh_filter}
        own |= {_TOUCH: _touch_filter, _COMPARE: _compare_filter}
        self.filters = {**filters, **own}
        self.tests = {name: _paid_test(name, one) for name, one in self.tests.items()}
        # Filler text, of no use in a message.
        del self.globals["lipsum"]

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:  # noqa: ANN401  (as Jinja2 has it)
        if sum(1 for _ in source.find_all(nodes.Node)) > MOST_PARTS:
            message = f"it has more than {MOST_PARTS} names, operators and other parts"
            raise SecurityError(message)
        _Paying().visit(source)
        return super()._generate(source, *args, **kwargs)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """Join the output of a macro or a block."""
        whole = list(parts)
        _spend(1 + sum(map(len, whole)) // _CHARACTERS)
        return "".join(whole)

    def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401  (as Jinja2 has it)
        """Return an item; charge for a key that is a list or tuple."""
        if _is_container(argument):
            _spend(_weigh(argument))
        return super().getitem(obj, argument)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  (as Jinja2 has it)
        """Call a macro, a function or a method of data.

        Raises:
            SecurityError: a template may not call it, or it costs too much.
        """
        given = [*args, *(one for name, one in kwargs.items() if name not in _SCOPES)]
        owner = getattr(obj, "__self__", None) if isinstance(obj, _BOUND) else None
        if isinstance(obj, BuiltinMethodType) or isinstance(owner, str):
            _spend(_cost_of_method(owner, obj.__name__, given))
        else:
            slow = 4 if obj is dict else 1
            _spend(slow * sum(map(_weigh if slow > 1 or owner is not None else _touch, given), 1))
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401  (as Jinja2 has it)
        """Evaluate a binary operator.

        Raises:
            SecurityError: the result would be too large, or costs too much.
        """
        numbers = [one for one in (left, right) if isinstance(one, int | float)]
        if operator == "**" and any(abs(one) > MOST_POWER for one in numbers):
            message = f"a number above {MOST_POWER} in a power is refused"
            raise SecurityError(message)
        if operator == "*" and len(numbers) == 1:
            repeated = right if numbers[0] is left else left
            if len(repeated) * numbers[0] > MOST_PRODUCT:
                message = f"a repetition longer than {MOST_PRODUCT} is refused"
                raise SecurityError(message)
            _spend(1 + int(len(repeated) * max(0, numbers[0])) // _FACTOR)
        elif operator == "%" and isinstance(left, str):
            units = _scalar(left) + _check_format(left)
            _spend(units * _factor([right], widths=False))
        else:
            measure = _touch if operator == "+" else _weigh
            _spend(measure(left) + measure(right))
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:  # noqa: ANN401  (as Jinja2 has it)
        """Return the replacement of `str.format`; None if the value is not that method."""
        if super().wrap_str_format(value) is None:
            return None
        text: str = value.__self__
        formatter = (
            _EscapeFormatter(self, escape=text.escape)
            if isinstance(text, Markup)
            else _Formatter(self)
        )
        mapped = value.__name__ == "format_map"

        def formatted(*args: Any, **kwargs: Any) -> str:  # noqa: ANN401  (as above)
            _spend(_scalar(text))
            if mapped:
                (kwargs,), args = args, ()
            return type(text)(formatter.vformat(text, args, kwargs))

        return update_wrapper(formatted, value)


_SCOPES = frozenset({"_loop_vars", "_block_vars"})
"""Arguments that Jinja2 adds to calls in loops."""
_BOUND = (BuiltinMethodType, MethodType)


def _cost_of_method(owner: object, name: str, given: Sequence[object]) -> int:
    """Return the cost of calling a method of data.

    Raises:
        SecurityError: templates may not call it.
    """
    allowed = next((names for one, names in _METHODS.items() if isinstance(owner, one)), ())
    if name not in allowed:
        message = f"the method {name} of {type(owner).__name__} is refused"
        raise SecurityError(message)
    if name in _QUICK_METHODS:
        return sum(map(_weigh, given), 1)
    slow = _SLOW.get(name, 1)
    return slow * _weigh(owner) * _factor(given, widths=name in _WIDTHS)
