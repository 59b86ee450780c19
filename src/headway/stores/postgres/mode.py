"""How much of the store a step has for itself, and why it may have to be done in another way."""

from __future__ import annotations

from enum import Enum

# Whatever the database's default is: a step must see what was committed while it waited.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"


class Mode(Enum):
    """How much of the store a step has for itself."""

    TURN = _BEGIN
    """Everything: no other step decides meanwhile."""
    SHARED = f"{_BEGIN} "
    """Beside others that share, but not beside a step with the turn."""
    BEAT = f"{_BEGIN}   "
    """One worker's lease, beside the step that has the turn."""
    READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    """One snapshot."""
    INSERT = f"{_BEGIN}  "
    """Nothing: it only adds."""
    PEEK = ""
    """One look, in one trip; it ends where more must be known or anything written."""
    WHOLE = "  "
    """Beside others that share, in one trip: what it takes for granted is checked as it writes."""
    BLIND = " "
    """It only adds, and asks nothing: what it takes for granted is checked as it is written."""
    GUEST = "SAVEPOINT headway_send"
    """It only adds, within a transaction of the caller."""


class NeedsMore(Exception):
    """The step cannot be done in its mode; nothing was written."""


class KeyHeld(Exception):
    """Another open transaction has sent a key or id of the step; nothing was written."""


class Repeat(Exception):
    """Another step was faster; nothing was written, and the step must be repeated."""
