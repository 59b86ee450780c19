"""What a step has done, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headway.stores.postgres.link import Sent

Woken = dict[tuple[str | None, int | None], None]
"""Lanes that are woken (None: any), with from when (None: now)."""
Speech = Callable[[Woken], Sent | None]
"""Makes the statement that tells other processes of a commit, if there is to be one."""


def silent(_: Woken) -> None:
    """Notify no other process with the commit; the caller does it afterwards."""


class Done(NamedTuple):
    """What a step has done.

    Attributes:
        wrote: whether it wrote anything.
        woken: lanes to wake (None: any), with from when (None: now).
        told: whether those who wait in other processes were told.
    """

    wrote: bool
    woken: Woken
    told: bool
