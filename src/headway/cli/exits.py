"""Exit codes: what a program that calls `headway` learns without reading a word."""

from __future__ import annotations

from headway.core.errors import (
    AccessError,
    CallerError,
    HandlerError,
    HeadwayError,
    InvariantBroken,
    OwnershipError,
    ProviderError,
    StoreError,
)

DONE = 0
"""The command did what it was asked."""
NO = 1
"""It ran, and the answer is no: differences, problems, refused rows or jobs."""
CALLER = 2
"""The call is wrong: mend it and call again. Also a wrong option or argument."""
BUG = 70
"""A bug in Headway; please report it."""
INTERRUPTED = 130
"""Stopped by Ctrl-C."""

BY_BRANCH: dict[type[HeadwayError], int] = {
    CallerError: CALLER,
    AccessError: CALLER,
    OwnershipError: 3,
    StoreError: 4,
    HandlerError: 5,
    ProviderError: 6,
    InvariantBroken: BUG,
}
"""The code of each branch of the error tree."""


def exit_code(error: HeadwayError) -> int:
    """The exit code for an error: that of its branch of the tree.

    Args:
        error: any error of the tree.

    Returns:
        A code of `BY_BRANCH`, or 1 for an error of no branch.
    """
    for branch, code in BY_BRANCH.items():
        if isinstance(error, branch):
            return code
    return NO
