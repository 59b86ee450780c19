"""Signals as users say them, and the signed URLs under which they come."""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, TypedDict, cast
from urllib.parse import quote, urlencode

from headway.contract.signals import Decided, Signal, SignalKind
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.instant import format_instant
from headway.core.naming import check_name
from headway.runtime.kind_options import refuse_unknown
from headway.runtime.records import encode, text_of

Final = Literal["succeeded", "retry", "dead", "accepted", "declined"]


class SignalOptions(TypedDict, total=False):
    """Options of a signal: exactly one of `final`, `progress` and `note`, plus details.

    Attributes:
        final: settle the job with this outcome.
        progress: the work continues; `extend` sets a new deadline.
        note: label for the record, such as "DELIVERED"; also allowed after the job is final.
        extend: with progress: new time until the deadline, as "5m" or a timedelta.
        body: any JSON value, for the record.
        reason: with a final dead or declined: the reason.
        after: with a final retry: the delay, as "90s" or a timedelta.
        candidate: who answered an offer; defaults to the candidate whose turn it is.
        offer: the signal is about the offer only, such as the end of the call that made it; it is
            late once the candidate has accepted.
        known_as: another key, such as the provider's id, by which signals find the run from now on.
    """

    final: Final
    progress: bool
    note: str
    extend: object
    body: object
    reason: str
    after: object
    candidate: str
    offer: bool
    known_as: str


def read_signal(key: str, event: str, options: SignalOptions) -> Signal:
    """Read a signal.

    Raises:
        InvalidValue: it says nothing or too much, or a value is not understood.
    """
    refuse_unknown(options, SignalOptions, "a signal has no option")
    kind = _kind(options)
    body, extend, after = options.get("body"), options.get("extend"), options.get("after")
    offer = options.get("offer", False)
    if not isinstance(cast("object", offer), bool):
        message = f"a signal's offer is {offer!r:.40}"
        raise InvalidValue(message, hint="True or False")
    return Signal(
        key=check_name("key", key),
        event=check_name("event", event),
        kind=kind,
        decided=_decided(options.get("final", "succeeded")),
        body=None if body is None else encode("body", body),
        label=check_name("note", options["note"]) if "note" in options else "",
        extend_ms=None if extend is None else parse_duration(extend),
        after_ms=None if after is None else parse_duration(after),
        # A signal that comes early is kept, and what is wrong with it would fail its job's worker.
        reason=text_of(options.get("reason", "")),
        candidate=check_name("candidate", options.get("candidate", ""), empty=True),
        offer=offer,
        known_as=check_name("known_as", options.get("known_as", ""), empty=True),
    )


def _kind(options: SignalOptions) -> SignalKind:
    said = [word for word in ("final", "progress", "note") if options.get(word)]
    if len(said) != 1:
        message = f"a signal says {' and '.join(said) or 'nothing'}"
        raise InvalidValue(message, hint="pass one of final=, progress=True and note=")
    return SignalKind(said[0])


def _decided(word: str) -> Decided:
    try:
        return Decided(word)
    except ValueError:
        message = f"a signal's final is {word!r:.40}"
        raise InvalidValue(message, hint=", ".join(Decided)) from None


LIVES_MS = 30 * 86_400_000
"""How long a URL is good. It opens one run alone, and that run's end closes it for all but notes:
so it may well outlive the longest hand-over, and must not end before it."""

SHORTEST_KEY = 32
"""The shortest signing key, in bytes: as many as the digest has."""

PURPOSE = "headway signal"
_STEP_MS = 86_400_000
_REFERENCE = re.compile(r"[A-Za-z0-9-]+:[0-9]+", re.ASCII)
_EXPIRES = re.compile(r"[0-9]{1,15}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalUrls:
    """Makes and checks the URLs under which the outside world signals.

    Attributes:
        base: the address under which the server is reached, with or without a slash at its end.
        keys: the newest first: it signs, and all verify; without one, URLs are not signed, and are
            accepted only by a server that is open.
    """

    base: str
    keys: tuple[str, ...] = field(default=(), repr=False)

    def url(self, key: str, now: int) -> str:
        """The URL of a key.

        Args:
            key: a job's reference, or a key that it is known as.
            now: the moment, ms UTC. The URL is good for 30 days and ends at midnight UTC, so that
                it stays the same when it is asked for again.
        """
        plain = f"{self.base.rstrip('/')}/v1/signals/{_quoted(key)}"
        if not self.keys:
            return plain
        expires = -(-(now + LIVES_MS) // _STEP_MS) * _STEP_MS
        signature = sign(self.keys[0], PURPOSE, str(expires), key)
        return f"{plain}?{urlencode({'expires': expires, 'signature': signature})}"


def _quoted(key: str) -> str:
    # Nearly all are references, and a claim's reply has one for each of its jobs.
    return key.replace(":", "%3A") if _REFERENCE.fullmatch(key) else quote(key, safe="")


def find_fault(
    keys: Sequence[str], key: str, *, expires: str, signature: str, now: int
) -> str | None:
    """What is wrong with a signed URL, in a time that does not depend on which key fits.

    Args:
        now: the moment, ms UTC; a URL is good until just before its end.

    Returns:
        The fault, in a few words that hold no secret; None if there is none.
    """
    fits = is_signed(keys, signature, PURPOSE, expires, key)
    if not fits or _EXPIRES.fullmatch(expires) is None:
        return "its signature is not ours"
    return None if now < int(expires) else f"it ended at {format_instant(int(expires))}"


def read_signing_keys(written: str | Sequence[str] | None) -> tuple[str, ...]:
    """Read the keys of a setting.

    Args:
        written: one key, or several, the newest first; in text they are divided by commas.

    Raises:
        InvalidValue: one is too short to be secure; the message does not contain it.
    """
    if written is None:
        return ()
    parts = written.split(",") if isinstance(written, str) else written
    keys = tuple(part.strip() for part in parts if part.strip())
    for place, key in enumerate(keys, start=1):
        if len(key.encode()) < SHORTEST_KEY:
            message = f"signing key {place} is shorter than {SHORTEST_KEY} bytes"
            raise InvalidValue(message, hint="create one with: openssl rand -base64 32")
    return keys


def sign(secret: str, purpose: str, *parts: str) -> str:
    """Return the signature of a link, for its URL.

    Args:
        purpose: is signed first, so that no other use of the same key can be passed off as this.
        parts: of the link; none but the last may hold a line break.
    """
    text = "\n".join((purpose, *parts)).encode("utf-8", "surrogatepass")
    digest = hmac.digest(secret.encode(), text, sha256)
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_signed(keys: Sequence[str], signature: str, purpose: str, *parts: str) -> bool:
    """Return whether one of the keys signed this, in a time that does not depend on which."""
    said = signature.encode("utf-8", "surrogatepass")
    fits = False
    for one in keys:
        fits |= hmac.compare_digest(sign(one, purpose, *parts).encode(), said)
    return fits
