"""The catalogue of commands: each is loaded when it is called, so that the first line is quick."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from headway.core.errors import InvalidValue

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "run",
        "serve": "serve",
        "dispenserd": "dispenserd",
        "worker": "worker",
        "send": "send",
        "jobs": "jobs",
        "job": "job",
        "why": "why",
        "lanes": "lanes",
        "gates": "gates",
        "pause": "pause",
        "resume": "resume",
        "cancel": "cancel",
        "retry": "retry",
        "timetable": "timetable",
        "audit": "audit",
        "doctor": "doctor",
        "migrate": "migrate",
        "import": "import_",
        "export": "export",
        "copy": "copy",
        "token": "token",
        "simulate": "simulate",
        "carrier": "carrier",
        "version": "version",
    }
)
"""Each command and its module in `headway.cli.commands`, in the order of the help."""


class Catalogue(TyperGroup):
    """The group of all commands."""

    def list_commands(self, ctx: object) -> list[str]:
        """The names, in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> Any:  # noqa: ANN401  (typer's own command type is private)
        """Loads a command.

        Args:
            ctx: not used.
            cmd_name: as typed.

        Returns:
            The command.

        Raises:
            InvalidValue: there is none of that name; the hint has near names.
        """
        del ctx
        module = COMMANDS.get(cmd_name)
        if module is None:
            near = get_close_matches(cmd_name, COMMANDS, n=2)
            message = f"there is no command {cmd_name!r}"
            hint = f"did you mean {' or '.join(near)}?" if near else "see headway --help"
            raise InvalidValue(message, hint=hint)
        app: typer.Typer = import_module(f"headway.cli.commands.{module}").app
        loaded = get_command(app)
        loaded.name = cmd_name
        return loaded
