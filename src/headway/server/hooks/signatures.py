"""What the signatures of all providers have in common: strict text, fresh moments."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import NoReturn

from headway.core.errors import Unauthenticated

TOLERANCE_MS = 300_000
"""How far the moment of a webhook may lie from now.

Source: Standard Webhooks, "Verifying signatures".
"""

_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)


def refuse() -> NoReturn:
    """Refuses a signature that does not fit; tells nothing of what would.

    Raises:
        Unauthenticated: always.
    """
    message = "the webhook's signature does not fit"
    hint = "compare the keys with the provider's, and public_url with the URL it calls"
    raise Unauthenticated(message, hint=hint)


def check_fresh(written: str, now: int, tolerance_ms: int) -> None:
    """Lets a moment pass that is near enough.

    Args:
        written: seconds since 1970, as the webhook says.
        now: the moment, ms UTC.
        tolerance_ms: how far it may lie from now, before and after.

    Raises:
        Unauthenticated: it is no number, or too far away.
    """
    if _SECONDS.fullmatch(written) is None:
        message = "the webhook's timestamp is no number of seconds"
        raise Unauthenticated(message)
    away_ms = now - int(written) * 1000
    if abs(away_ms) > tolerance_ms:
        old = "old" if away_ms > 0 else "far ahead"
        message = f"the webhook's timestamp is too {old}"
        raise Unauthenticated(message, hint="check the clocks; a webhook is not to be replayed")


def any_same(expected: Iterable[bytes], said: bytes) -> bool:
    """Whether one of them is what was said, in a time that does not depend on which one."""
    same = False
    for one in expected:
        same |= hmac.compare_digest(one, said)
    return same


def strict_base64(text: str) -> bytes | None:
    """The bytes that a text stands for; None unless it is the one text that stands for them."""
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        return None
    return data if b64encode(data).decode() == text else None
