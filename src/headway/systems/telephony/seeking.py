"""Which of a provider's calls is the one that is sought: never guessed."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.errors import ProviderUnsure
from headway.systems.telephony.voice import CallEvent, NotFound

SKEW_MS = 5_000
"""How far a provider's clock may be behind the store's."""


def the_one(found: Sequence[CallEvent]) -> CallEvent | NotFound:
    """The call that is sought, if it is certain which one it is.

    Args:
        found: the calls that it can be.

    Returns:
        The only one; `UNCLEAR` if there are several and all of them have ended.

    Raises:
        ProviderUnsure: there are several and one of them still runs: its line must not be freed.
    """
    if len(found) <= 1:
        return found[0] if found else NotFound.NO_CALL
    if all(one.status.ended for one in found):
        return NotFound.UNCLEAR
    message = f"{found[0].provider} knows {len(found)} calls that could be the one that is sought"
    raise ProviderUnsure(message, hint="it is known for certain once they have ended")
