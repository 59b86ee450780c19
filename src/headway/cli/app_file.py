"""Loading a user's App from a file or a module."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

from headway.cli.session import CommandSession
from headway.core.errors import HeadwayError, InvalidValue
from headway.runtime.app import App
from headway.stores import open_store

_STORE = "HEADWAY_STORE"
_HINT = "name a file as calls.py, or a module as shop.jobs, with :name if the App is not `app`"


def load_app(target: str) -> App:
    """Import a user's program and return its App.

    Args:
        target: A path that ends in .py, or a module's dotted name, optionally followed by `:name`.
            A file in a package is imported under its full name. The folder of the top-level package
            (for a module, the working directory) is prepended to sys.path.

    Returns:
        The App with the given name. Without a name, the one called `app`, or the only one.

    Raises:
        InvalidValue: there is no such file or module, importing it fails (the message says where),
            or it defines no App or several.
    """
    place, _, name = target.partition(":")
    module = _load(place)
    if name:
        found = getattr(module, name, None)
        if not isinstance(found, App):
            what = "is not an App" if hasattr(module, name) else "does not exist"
            message = f"{place}: {name} {what}"
            raise InvalidValue(message, hint=_found_hint(module))
        return found
    apps = {id(one): one for one in vars(module).values() if isinstance(one, App)}
    named = getattr(module, "app", None)
    if isinstance(named, App):
        return named
    if len(apps) != 1:
        message = f"{place} defines {len(apps) or 'no'} App{'s' if apps else ''}"
        raise InvalidValue(message, hint=_found_hint(module))
    return next(iter(apps.values()))


def open_app(session: CommandSession, target: str | None) -> App:
    """Return the App that a command works with.

    Args:
        session: Its `--store` overrides the App's own store; its settings provide the store of an
            App that names none.
        target: The App as named on the command line. None for the one in the settings, or if there
            is none, an App on the session's store with only the kind `noop`.
    """
    named = target or session.settings.app
    if named is None:
        return App(session.store_url, opener=open_store)
    with _default_store(session.store_url):
        found = load_app(named)
    if session.named_store is not None:
        found.move_to(session.named_store)
    return found


def require_app(session: CommandSession, target: str | None) -> None:
    """Refuse to run jobs without an App: each attempt of a job in its lanes would fail.

    Raises:
        InvalidValue: no App is named on the command line or in the settings.
    """
    if not (target or session.settings.app):
        message = "no App is named, so there are no handlers to run jobs with"
        raise InvalidValue(message, hint="pass one, such as calls.py, or set app in headway.toml")


def at_app(session: CommandSession, target: str) -> CommandSession:
    """Return a session on the store of an App, without declaring anything there.

    Args:
        session: Its `--store` overrides the App's own store.

    Raises:
        InvalidValue: the App was created with an open store, which other processes cannot reach.
    """
    url = open_app(session, target).url
    if not url:
        message = f"the App of {target} was given an open store"
        raise InvalidValue(message, hint="pass its URL with --store instead of --app")
    return CommandSession(store=url, json=session.json)


@contextmanager
def _default_store(url: str) -> Generator[None]:
    """Set HEADWAY_STORE while the block runs, for an App that names no store."""
    before = os.environ.get(_STORE)
    os.environ[_STORE] = url
    try:
        yield
    finally:
        del os.environ[_STORE]
        if before is not None:
            os.environ[_STORE] = before


def _load(place: str) -> ModuleType:
    if place.endswith(".py") or "/" in place:
        path = Path(place).resolve()
        if not path.is_file():
            message = f"there is no file {place}"
            raise InvalidValue(message, hint=_HINT)
        root, module = _package_root(path)
    else:
        root, module = Path.cwd(), place
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        with _loggers_enabled():
            return import_module(module)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            message = f"there is no module {place!r}"
            raise InvalidValue(message, hint=_HINT) from None
        message, hint = _explained(error, place)
        raise InvalidValue(message, hint=hint) from error


@contextmanager
def _loggers_enabled() -> Generator[None]:
    """Keep Headway's loggers enabled, although the block configures logging.

    By default `logging.config.dictConfig` disables all loggers that exist, and an App that calls it
    would hide the failures of its jobs.
    """
    enabled = [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if name.startswith("headway.")
        and isinstance(logger, logging.Logger)
        and not logger.disabled
    ]
    yield
    for logger in enabled:
        logger.disabled = False


def _package_root(path: Path) -> tuple[Path, str]:
    """Return the folder to put on sys.path, and the file's full module name below it."""
    parts = [path.stem]
    root = path.parent
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    return root, ".".join(parts)


def _explained(error: BaseException, place: str) -> tuple[str, str]:
    """Return the error's message, with the innermost line in the user's own files, and a hint."""
    text = error.message if isinstance(error, HeadwayError) else f"{type(error).__name__}: {error}"
    hint = (
        error.hint if isinstance(error, HeadwayError) else "run it with python to see the traceback"
    )
    if isinstance(error, SyntaxError):
        return f"{place} cannot be imported: line {error.lineno}: {error.msg}", hint
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        # Generated code, such as a dataclass's methods, has the file name "<string>".
        if not frame.filename.startswith((f"{_HERE}/", "<")) and "importlib" not in frame.filename
    ]
    where = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    return f"{place} cannot be imported: {text}{where}", hint


_HERE = str(Path(__file__).resolve().parent.parent)


def _found_hint(module: ModuleType) -> str:
    names = [name for name, one in vars(module).items() if isinstance(one, App)]
    return f"it defines {', '.join(names)}: pass file:name" if names else "app = hw.App()"
