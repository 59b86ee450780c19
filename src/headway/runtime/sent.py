"""What a send answers."""

from __future__ import annotations

from typing import NamedTuple


class Sent(NamedTuple):
    """The job that exists now.

    Attributes:
        id: its id: a new job's, or that of the one that has the key.
        created: whether this call made it.
    """

    id: str
    created: bool
