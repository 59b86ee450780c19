"""Rendering: templates in Jinja2, sandboxed, HTML escaped; a fault names its place and line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, UndefinedError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import Field

from headway.core.errors import InvalidValue

MOST_RENDERED = 500_000
"""Characters of one rendered text."""
MOST_SOURCE = 200_000
"""Characters of a template."""
Source = Annotated[str, Field(max_length=MOST_SOURCE)]
MOST_PRODUCT = 100_000
"""Characters or items that a repetition in a template makes."""
MOST_POWER = 1_000
"""Numbers of a power in a template."""

Forms = Mapping[str, str]
"""A channel's templates, by form."""


class _Environment(ImmutableSandboxedEnvironment):
    """Refuses what would fill memory: a text repeated a million times, a huge power."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401  (as Jinja2 has it)
        """Compute one product or power.

        Raises:
            SecurityError: it would be too large.
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
        return super().call_binop(context, operator, left, right)


_PLAIN = _Environment(undefined=StrictUndefined)
_HTML = _Environment(undefined=StrictUndefined, autoescape=True)


@dataclass(frozen=True, slots=True)
class Rendered:
    """What one channel says; the title is one line, and may be empty."""

    title: str
    text: str
    html: str | None


def check_forms(forms: Forms) -> None:
    """Validate the templates of a channel.

    Raises:
        InvalidValue: one has a fault of syntax; the message has its form and line.
    """
    for form, source in forms.items():
        _compiled(form, source)


def render(forms: Forms, data: Mapping[str, object]) -> Rendered:
    """Render the templates of a channel with the data that they name.

    Raises:
        InvalidValue: a name is not in the data, or something cannot be done; the message has the
            form and the line.
    """
    html = forms.get("html")
    return Rendered(
        title=" ".join(_rendered("title", forms.get("title", ""), data).split()),
        text=_rendered("text", forms.get("text", ""), data),
        html=None if html is None else _rendered("html", html, data),
    )


@lru_cache(maxsize=1024)
def _compiled(form: str, source: str) -> Template:
    try:
        return (_HTML if form == "html" else _PLAIN).from_string(source)
    except TemplateSyntaxError as error:
        message = f"{form}, line {error.lineno}: {error.message}"
        raise InvalidValue(message, hint="the syntax is that of Jinja2") from None


def _rendered(form: str, source: str, data: Mapping[str, object]) -> str:
    if "{" not in source:
        return source
    template = _compiled(form, source)
    parts: list[str] = []
    length = 0
    try:
        for part in template.generate(**data):
            parts.append(part)
            length += len(part)
            if length > MOST_RENDERED:
                break
    # A template can raise whatever its filters and its data's methods raise.
    except Exception as error:
        where = f"{form}, line {_line(error, template)}"
        hint = "give it in data" if isinstance(error, UndefinedError) else "correct the template"
        message = f"{where}: {str(error)[:200] or type(error).__name__}"
        raise InvalidValue(message, hint=hint) from error
    if length > MOST_RENDERED:
        message = f"{form}: it renders to more than {MOST_RENDERED} characters"
        raise InvalidValue(message, hint="shorten the template, or its data")
    return "".join(parts)


def _line(error: BaseException, template: Template) -> int:
    """The line of the template that raised; Jinja2 rewrites the traceback so that it has it."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in {"<template>", template.filename}:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
