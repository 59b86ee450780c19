"""The sandbox of message templates: Jinja2 in which each rendering has a limited amount of work.

A rendering runs in the event loop, where it cannot be interrupted. So its work is charged to a
budget before it is done: each iteration of a loop and each call of a macro by the size of its body,
and each operator, comparison, filter, test and method by its cost in `template_costs.py`.

Jinja2 has hooks for operators, calls and filters, but not for loops, comparisons and output. So the
parsed template is rewritten: these get a filter that charges the budget.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from jinja2.visitor import NodeTransformer
from markupsafe import Markup

from headway.systems.notifications.template_costs import (
    CHARACTERS,
    FACTOR,
    SLOW,
    WIDTHS,
    check_format,
    cost_of_method,
    factor,
    is_container,
    scalar,
    spend,
    spend_compared,
    touch,
    weigh,
    width,
)

MOST_PARTS = 20_000
"""Maximum parts of a parsed template (names, operators, loops): compiling them takes time."""
MOST_PRODUCT = 100_000
"""Maximum characters or items that a repetition creates."""
MOST_POWER = 1_000
"""Maximum base and exponent of a power."""

_NODES = 4
"""Parts of a loop's body per unit."""

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

_DIGITS = re.compile(r"\d+")


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
    spend(units)
    return True


@pass_context
def _weigh_filter(_: Context, value: object) -> object:
    spend(weigh(value))
    return value


@pass_context
def _touch_filter(_: Context, value: object) -> object:
    spend(touch(value))
    return value


@pass_context
def _compare_filter(_: Context, left: object, name: str, right: object) -> bool:
    spend_compared(name, left, right)
    return _COMPARISONS[name](left, right)


def _paid_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that charges the budget; it returns a list if Jinja2's returns an iterator.

    Because it takes the context, Jinja2 does not evaluate it while compiling a template.
    """
    slow, widths = SLOW.get(name, 1), name in WIDTHS

    @pass_context
    def paid(context: Context, value: object, *args: object, **kwargs: object) -> object:
        given = (*args, *kwargs.values())
        passed = _passed(function, context)
        if name in _CONSTANT:
            spend(1)
            return function(*passed, value, *args, **kwargs)
        units = touch(value) if name in _ITEMS_ONLY else weigh(value)
        if name == "format":
            units += check_format(str(value))
        elif name == "sum" and any(map(is_container, given)):
            units *= 1 + units // 64  # each sum is a copy
        spend(units * slow * factor(given, widths=widths))
        return _whole(function(*passed, value, *args, **kwargs))

    return paid


def _paid_test(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def paid(context: Context, value: object, *args: object) -> object:
        if name in _COMPARING_TESTS and args:
            spend_compared(name, value, args[0])
        else:
            spend(weigh(value) * factor(args, widths=False) if name in _READING_TESTS else 1)
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
        spend(touch(one))
        found.append(one)
    return found


class _Formatter(SandboxedFormatter):
    """Formats like `str.format`, and charges for each field."""

    def format_field(self, value: Any, format_spec: str) -> Any:  # noqa: ANN401  (as Python has it)
        spend(weigh(value) + sum(map(width, _DIGITS.findall(format_spec))) // FACTOR)
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
        spend(1 + sum(map(len, whole)) // CHARACTERS)
        return "".join(whole)

    def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401  (as Jinja2 has it)
        """Return an item; charge for a key that is a list or tuple."""
        if is_container(argument):
            spend(weigh(argument))
        return super().getitem(obj, argument)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  (as Jinja2 has it)
        """Call a macro, a function or a method of data.

        Raises:
            SecurityError: a template may not call it, or it costs too much.
        """
        given = [*args, *(one for name, one in kwargs.items() if name not in _SCOPES)]
        owner = getattr(obj, "__self__", None) if isinstance(obj, _BOUND) else None
        if isinstance(obj, BuiltinMethodType) or isinstance(owner, str):
            spend(cost_of_method(owner, obj.__name__, given))
        else:
            slow = 4 if obj is dict else 1
            spend(slow * sum(map(weigh if slow > 1 or owner is not None else touch, given), 1))
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
            spend(1 + int(len(repeated) * max(0, numbers[0])) // FACTOR)
        elif operator == "%" and isinstance(left, str):
            units = scalar(left) + check_format(left)
            spend(units * factor([right], widths=False))
        else:
            measure = touch if operator == "+" else weigh
            spend(measure(left) + measure(right))
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
            spend(scalar(text))
            if mapped:
                (kwargs,), args = args, ()
            return type(text)(formatter.vformat(text, args, kwargs))

        return update_wrapper(formatted, value)


_SCOPES = frozenset({"_loop_vars", "_block_vars"})
"""Arguments that Jinja2 adds to calls in loops."""
_BOUND = (BuiltinMethodType, MethodType)
