"""The system `lanes`: a job queue that programs in any language poll over HTTP."""

from __future__ import annotations

from collections.abc import Mapping

from headway.systems.lanes.settings import read_settings
from headway.systems.lanes.system import LanesSystem


def make(settings: Mapping[str, object]) -> LanesSystem:
    """Make the system.

    Args:
        settings: the table [lanes] of headway.toml: what each lane carries, by its name.

    Returns:
        The system; nothing is declared before it is started.

    Raises:
        InvalidValue: a lane's settings are unusable.
    """
    return LanesSystem(read_settings(settings))
