"""The table [lanes] of headway.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from headway.contract.definitions import LaneSpec
from headway.core.errors import InvalidValue, located
from headway.runtime.declaration import LaneOptions, read_lane


def read_settings(settings: Mapping[str, object]) -> tuple[LaneSpec, ...]:
    """Read what each lane carries.

    Args:
        settings: a table for each lane, with the options of `app.lane`.

    Returns:
        The lanes, in the order written.

    Raises:
        InvalidValue: something in it is not a lane, or an option is unusable.
    """
    return tuple(_lane(name, options) for name, options in settings.items())


def _lane(name: str, options: object) -> LaneSpec:
    if not isinstance(options, Mapping):
        message = f"[lanes]: {name} is no table"
        raise InvalidValue(message, hint=f'write [lanes.{name}] and below it target = "5s"')
    with located(f"[lanes.{name}]: "):
        return read_lane(name, cast("LaneOptions", options))
