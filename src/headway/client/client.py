"""The client: a program's way to a server."""

from __future__ import annotations

from headway.client.looking import Looking
from headway.client.producing import Producing
from headway.client.working import Working


class Client(Producing, Looking, Working):
    """A program's way to a server: produces, signals, looks, and works.

    Everything is there twice: for callers that wait, and with `_async` for those that await.
    """
