"""Rounds: several claims that together examine all flows of a lane, page by page."""

from __future__ import annotations

from dataclasses import replace

from headway.contract.claims import ClaimReply, ClaimRequest

BEGAN = ""
"""The key, among a claim's cursors by lane, of the last wake before the round began."""


def with_seen(request: ClaimRequest, reply: ClaimReply, seen: int) -> ClaimReply:
    """Add to a claim's reply the number of the last wake that `wait` may ignore.

    Jobs that arrive during a round may be behind its cursor, so the reply that ends a round gives
    the number from its begin.

    Args:
        seen: the number of the last wake before the claim.

    Returns:
        The reply with `seen`, and with the cursor of the round.
    """
    began = min(seen, request.after.get(BEGAN, seen))
    after = {**reply.after, BEGAN: began} if reply.after else reply.after
    return replace(reply, seen=began, after=after)
