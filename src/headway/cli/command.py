"""The decorator that turns a function into a command with the options --store and --json."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, cast, get_args

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from headway.cli.global_options import JSON, STORE, GlobalOptions
from headway.cli.session import CommandSession

Options = ParamSpec("Options")
Function = Callable[Concatenate[CommandSession, Options], None]

_SECTION = re.compile(r"\n\s*\n(Args|Raises|Returns):\n")
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_VALUES = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH"}
"""Default placeholder of an option's value in the help, by type."""


def new_command() -> typer.Typer:
    """Return an empty command or group, to which `command` adds functions."""
    return typer.Typer(add_completion=False, rich_markup_mode=None)


def command(
    app: typer.Typer,
    name: str | None = None,
    *,
    default: bool = False,
    cls: type[TyperCommand] | None = None,
) -> Callable[[Function[Options]], Function[Options]]:
    """Register a function as a command of `app`.

    Args:
        name: Name of a group's member; None for a file's only command.
        default: Whether the group runs it if no member is named.
        cls: Class of a command that parses its arguments differently.

    Returns:
        A decorator that returns the function unchanged. The function's first parameter is the
        session, the others are its arguments and options; a parameter whose type is a dataclass is
        replaced by that dataclass's fields. The docstring, up to its sections, is the help.
    """

    def decorate(function: Function[Options]) -> Function[Options]:
        bound = _bound(function)
        text = _SECTION.split(inspect.getdoc(function) or "")[0]
        if default:
            app.callback(invoke_without_command=True, help=text)(bound)
        else:
            app.command(name, help=text, cls=cls)(bound)
        return function

    return decorate


def _bound(function: Function[Options]) -> Callable[..., None]:
    """Return the function for typer: without session and dataclasses, with --store and --json."""
    _, *taken = inspect.signature(function, eval_str=True).parameters.values()
    kinds: dict[str, type] = {one.name: one.annotation for one in taken}
    groups = {name: _fields(kind) for name, kind in kinds.items() if is_dataclass(kind)}

    @wraps(function)
    def bound(context: typer.Context, store: str | None, json: bool, **values: object) -> None:
        before = context.obj if isinstance(context.obj, GlobalOptions) else GlobalOptions()
        options = context.obj = before.merged(store=store, json=json)
        if context.invoked_subcommand is not None:
            return
        for one in taken:
            if one.name in groups:
                fields = {field.name: values.pop(field.name) for field in groups[one.name]}
                values[one.name] = one.annotation(**fields)
        session = CommandSession(store=options.store, json=options.json)
        cast("Callable[..., None]", function)(session, **values)

    parameters = [
        inspect.Parameter("context", _KEYWORD, annotation=typer.Context),
        *(part.replace(kind=_KEYWORD) for one in taken for part in groups.get(one.name, [one])),
        inspect.Parameter("store", _KEYWORD, annotation=STORE, default=None),
        inspect.Parameter("json", _KEYWORD, annotation=JSON, default=False),
    ]
    for one in parameters:
        _name_value(one.annotation)
    bound.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  (read by inspect)
    bound.__annotations__ = {one.name: one.annotation for one in parameters}
    return bound


def _name_value(annotation: Any) -> None:  # noqa: ANN401  (of any option)
    """Set the placeholder of an option's value, unless it has one or a Literal's values."""
    match get_args(annotation):
        case (kind, OptionInfo(metavar=None) as option):
            while inner := get_args(kind):
                kind = inner[0]
            option.metavar = _choices(kind) or _VALUES.get(kind)
        case _:
            pass


def _choices(kind: object) -> str:
    """Return the values of an enumeration, such as "<a|b>"; empty for any other type."""
    if not (isinstance(kind, type) and issubclass(kind, StrEnum)):
        return ""
    return f"<{'|'.join(one.value for one in kind)}>"


def _fields(group: Callable[..., object]) -> list[inspect.Parameter]:
    return list(inspect.signature(group, eval_str=True).parameters.values())
