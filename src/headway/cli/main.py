"""The `headway` command: loads the named command, runs it, and maps failures to exit codes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from errno import EACCES, ELOOP, ENAMETOOLONG, EPERM
from importlib import import_module
from io import FileIO, TextIOWrapper
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typing_extensions import Buffer

from headway.cli.failures import DONE, INTERRUPTED, NO_SPACE, report
from headway.cli.global_options import JSON, STORE, VERSION, GlobalOptions, show_version
from headway.core.errors import InvalidValue, StoreFull


class Entry(NamedTuple):
    """A command that is not loaded yet.

    Attributes:
        help: Its line in the list of all commands.
        app: Its variable in the module: `app`, or for further commands their name with `_app`.
    """

    module: str
    help: str
    app: str = "app"


COMMANDS: Mapping[str, Entry] = {
    "run": Entry(
        "commands.worker", "Run an App in one process, with a live status line.", "run_app"
    ),
    "serve": Entry("commands.serve", "Serve the HTTP API and do the store's maintenance."),
    "dispenserd": Entry("commands.serve", "Serve unmodified dispenserd clients.", "dispenserd_app"),
    "worker": Entry("commands.worker", "Claim jobs and run their handlers."),
    "bridge": Entry("commands.bridge", "Read messages from Kafka and publish to it."),
    "top": Entry("commands.top", "Watch lanes, gates and jobs live, and act on them."),
    "send": Entry("commands.send", "Send a job, or many copies of it."),
    "jobs": Entry("commands.jobs", "List jobs."),
    "job": Entry("commands.jobs", "Show a job with its runs and its trail.", "job_app"),
    "why": Entry("commands.jobs", "Explain why a job is not running.", "why_app"),
    "lanes": Entry("commands.lanes", "List lanes, or change a lane's settings."),
    "gates": Entry("commands.gates", "List gates, or change one."),
    "pause": Entry(
        "commands.gates", "Pause everything, a lane, a tenant, a kind or a gate.", "pause_app"
    ),
    "resume": Entry("commands.gates", "Resume what was paused.", "resume_app"),
    "cancel": Entry("commands.moves", "Cancel jobs by id or filter.", "cancel_app"),
    "retry": Entry("commands.moves", "Retry dead or cancelled jobs by id or filter.", "retry_app"),
    "timetable": Entry("commands.timetable", "List recurring entries, or change one."),
    "automations": Entry("commands.automations", "List recurring sessions against repositories."),
    "audit": Entry("commands.doctor", "Check that permits match their holders.", "audit_app"),
    "doctor": Entry("commands.doctor", "Check the store, its gates and its jobs for problems."),
    "migrate": Entry("commands.migrate", "Create a store, or upgrade its schema."),
    "import": Entry(
        "commands.files", "Create jobs from a file with an importer of the App.", "import_app"
    ),
    "export": Entry("commands.files", "Export jobs with their runs as JSON Lines."),
    "copy": Entry("commands.migrate", "Copy a stopped store into an empty one.", "copy_app"),
    "token": Entry("commands.token", "List, create, rotate and revoke API tokens."),
    "simulate": Entry("commands.simulate", "Run a scenario in virtual time."),
    "carrier": Entry("commands.carrier", "Simulate a phone carrier with Twilio's API."),
    "version": Entry("global_options", "Show the version."),
}
"""The commands, in the order of the help."""


class LazyCommands(TyperGroup):
    """The group of all commands."""

    def list_commands(self, ctx: object) -> list[str]:
        """Return the names, in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> Any:  # noqa: ANN401  (typer's own command type is private)
        """Load a command.

        Raises:
            InvalidValue: there is no such command; the hint has similar names.
        """
        del ctx
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            from headway.core.naming import did_you_mean  # noqa: PLC0415  (help needs none of core)

            message = f"there is no command {cmd_name!r}"
            hint = did_you_mean(cmd_name, COMMANDS, "see headway --help", most=2)
            raise InvalidValue(message, hint=hint)
        app: typer.Typer = getattr(import_module(f"headway.cli.{entry.module}"), entry.app)
        if not gc.isenabled():
            # All that was loaded stays, so that no later collection needs to look at it.
            gc.freeze()
            gc.enable()
        loaded = get_command(app)
        loaded.name = cmd_name
        return loaded

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  (typer's own types are private)
        """Write the list of commands without loading any of them."""
        _unloaded_group().format_commands(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:  # noqa: ANN401  (typer's own types are private)
        """Complete the name of a command, or an option, without loading any command."""
        stubs = _unloaded_group()
        stubs.params = self.params
        return stubs.shell_complete(ctx, incomplete)


def _unloaded_group() -> TyperGroup:
    """Return a group of all commands with only their names and help."""
    stubs = [TyperCommand(name, help=entry.help) for name, entry in COMMANDS.items()]
    return TyperGroup(name="headway", commands=stubs)


root = typer.Typer(name="headway", cls=LazyCommands, rich_markup_mode=None)


@root.callback(
    invoke_without_command=True,
    help="Dispatch work when it is due, within the limits that the real world sets.",
)
def headway(
    context: typer.Context, store: STORE = None, json: JSON = False, version: VERSION = False
) -> None:
    """Store the global options, or show the help.

    Raises:
        Exit: the version was shown.
    """
    context.obj = GlobalOptions(store=store, json=json)
    if version:
        show_version(json=json)
        raise typer.Exit(DONE)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def call(arguments: Sequence[str]) -> int:
    """Run one command, print a failure to standard error, and return the exit code."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    try:
        code = get_command(root).main(
            args=list(arguments), prog_name="headway", standalone_mode=False
        )
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (UnicodeEncodeError, InvalidValue) as error:
        return report(_encoding_error(error, arguments), json="--json" in options)
    except OSError as error:
        return report(_system_error(error), json="--json" in options)
    except Exception as error:  # noqa: BLE001  (the last boundary: nothing above it can report)
        return report(error, json="--json" in options)
    return code if isinstance(code, int) else DONE


def _system_error(error: OSError) -> Exception:
    """Return the error for a full device, or a path that cannot be used; any other is a bug."""
    if error.errno in NO_SPACE:
        message = f"the output cannot be written: {error.strerror}"
        return StoreFull(message, hint="free some space, or write it elsewhere")
    if error.errno in _PATHS and error.filename is not None:
        message = f"the path {str(error.filename)[:200]!r} cannot be used: {error.strerror}"
        return InvalidValue(message, hint="check its name and the permissions of its folders")
    return error


_PATHS = {EACCES, ELOOP, ENAMETOOLONG, EPERM}
"""Errors of a path that was named, not of the program."""


def _encoding_error(error: Exception, arguments: Sequence[str]) -> Exception:
    """Return the error for an argument in another encoding; any other stays as it is."""
    is_about_one = any(isinstance(one, UnicodeEncodeError) for one in (error, error.__context__))
    for one in arguments if is_about_one else ():
        if any("\ud800" <= letter <= "\udfff" for letter in one):
            message = f"the argument {one!r:.80} is not UTF-8"
            return InvalidValue(message, hint="nothing was written; is the terminal set to UTF-8?")
    return error


class _Unbuffered(FileIO):
    """A stream that writes everything, or raises: Python's own may write a part."""

    def write(self, data: Buffer, /) -> int:
        """Write all bytes, and return their number."""
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            left = left[super().write(left) :]
        return size


def main() -> None:
    """Run the console script; what the terminal's encoding does not have is escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(getattr(sys.stdout, "buffer", None), FileIO):
        # PYTHONUNBUFFERED is set, with which a full device would cut the output unnoticed.
        raw = _Unbuffered(sys.stdout.fileno(), "w", closefd=False)
        coding = sys.stdout.encoding
        sys.stdout = TextIOWrapper(raw, coding, "backslashreplace", write_through=True)
    sys.exit(call(sys.argv[1:]))
