"""Rounds: several claims that together look at all flows of a lane, window after window."""

from __future__ import annotations

from dataclasses import replace

from headway.contract.claims import ClaimReply, ClaimRequest

BEGAN = ""
"""Among the cursors of a claim, by lane: what was seen when the round began. No lane is empty."""


def with_seen(request: ClaimRequest, reply: ClaimReply, seen: int) -> ClaimReply:
    """Tells a claim's reply what `wait` may take for seen.

    What came while a round was under way may stand behind its cursor; so the reply that ends a
    round gives what was seen when it began.

    Args:
        request: of the claim.
        reply: to it.
        seen: the number of the last wake before the claim.

    Returns:
        The reply with `seen`, and with what the round needs to go on.
    """
    began = min(seen, request.after.get(BEGAN, seen))
    after = {**reply.after, BEGAN: began} if reply.after else reply.after
    return replace(reply, seen=began, after=after)
