"""The ready-made systems, by the names that `--system` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import cast

from headway.cli.settings import Settings
from headway.core.errors import InvalidValue
from headway.server.system import System

SYSTEMS: Mapping[str, str] = MappingProxyType({"lanes": "headway.systems.lanes"})
"""Each system and its package, which has `make(settings)`."""


def make_systems(names: Sequence[str], settings: Settings) -> list[System]:
    """Makes systems; each is given its own table of the settings.

    Args:
        names: as `--system` was given them.
        settings: of the session.

    Returns:
        The systems in this order, each once.

    Raises:
        InvalidValue: there is no such system, or its settings are unusable.
    """
    return [_make(name, settings) for name in dict.fromkeys(names)]


def _make(name: str, settings: Settings) -> System:
    package = SYSTEMS.get(name)
    if package is None:
        near = get_close_matches(name, SYSTEMS, n=1)
        message = f"there is no system {name!r}"
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SYSTEMS)}"
        raise InvalidValue(message, hint=hint)
    own = getattr(settings, name, None)
    return cast("System", import_module(package).make(own if own is not None else {}))
