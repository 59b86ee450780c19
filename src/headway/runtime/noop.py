"""The kind that is built in: its jobs do nothing, whatever their arguments."""

from __future__ import annotations

from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.kind_options import KindOptions

NOOP = "noop"


async def noop(job: Job, **_: object) -> None:
    """Does nothing."""


def noop_kind() -> Kind:
    """The kind `noop`; its handler is called without looking at the arguments."""
    return Kind(KindOptions(name=NOOP), noop)
