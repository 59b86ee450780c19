"""How much of the store a step has for itself, and why it may have to be done in another way."""

from __future__ import annotations

from enum import Enum


class Mode(Enum):
    """How much of the store a step has for itself."""

    TURN = "BEGIN"
    """Everything: no other step decides meanwhile."""
    SHARED = "BEGIN "
    """Beside others that share, and nobody who has the turn."""
    BEAT = "BEGIN   "
    """One worker's lease, beside whoever has the turn."""
    READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    """One snapshot."""
    INSERT = "BEGIN  "
    """Nothing: it only adds."""
    PEEK = ""
    """One look, in one trip; it ends where more must be known or anything written."""
    BLIND = " "
    """It only adds, and asks nothing: what it takes for granted is checked as it is written."""
    GUEST = "SAVEPOINT headway_send"
    """It only adds, within somebody else's transaction."""


class NeedsMore(Exception):
    """The step cannot be done in its mode; nothing was written."""


class KeyHeld(Exception):
    """Somebody's open transaction has sent a key or id of the step's; nothing was written."""


class Repeat(Exception):
    """Somebody else was faster; nothing was written, and the step is to be done anew."""
