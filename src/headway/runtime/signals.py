"""Signals from users' options, and the signed URLs that receive signals."""

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
from headway.core.duration import Duration, parse_duration
from headway.core.errors import InvalidValue
from headway.core.instant import format_instant
from headway.core.naming import check_flag, check_name, whole_number
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

    final: Final | Decided
    progress: bool
    note: str
    extend: Duration | None
    body: object
    reason: str
    after: Duration | None
    candidate: str
    offer: bool
    known_as: str


def read_signal(key: str, event: str, options: SignalOptions) -> Signal:
    """Build a signal from its options.

    Raises:
        InvalidValue: it has none or several of `final`, `progress` and `note`, an option that
            these do not use, or a value is not valid.
        PayloadTooLarge: the body exceeds the size limit.
    """
    refuse_unknown(options, SignalOptions, "a signal has no option")
    kind, decided = _kind(options), _decided(options.get("final", "succeeded"))
    body, extend, after = options.get("body"), options.get("extend"), options.get("after")
    if extend is not None and kind is not SignalKind.PROGRESS:
        message = "a signal has extend, but reports no progress"
        raise InvalidValue(message, hint="pass progress=True with it, or omit it")
    if after is not None and decided is not Decided.RETRY:
        message = "a signal has after, but requests no retry"
        raise InvalidValue(message, hint='pass final="retry" with it, or omit it')
    return Signal(
        key=check_name("key", key),
        event=check_name("event", event),
        kind=kind,
        decided=decided,
        body=None if body is None else encode("body", body),
        label=check_name("note", options["note"]) if "note" in options else "",
        extend_ms=None if extend is None else parse_duration(extend),
        after_ms=None if after is None else parse_duration(after),
        # An early signal is kept until its hand-over, where unusable text would fail the worker.
        reason=text_of(options.get("reason", "")),
        candidate=check_name("candidate", options.get("candidate", ""), empty=True),
        offer=check_flag("a signal's offer", options.get("offer", False)),
        known_as=check_name("known_as", options.get("known_as", ""), empty=True),
    )


def _kind(options: SignalOptions) -> SignalKind:
    named = [word for word in ("final", "progress", "note") if options.get(word)]
    if len(named) != 1:
        message = f"a signal has {' and '.join(named) or 'no content'}"
        raise InvalidValue(message, hint="pass one of final=, progress=True and note=")
    return SignalKind(named[0])


def _decided(word: str) -> Decided:
    try:
        return Decided(word)
    except ValueError:
        message = f"a signal's final is {word!r:.40}"
        raise InvalidValue(message, hint=", ".join(Decided)) from None


LIVES_MS = 30 * 86_400_000
"""How long a URL is valid. It must outlive the longest hand-over, and may outlive it by far: it
gives access to one run only, and to nothing but notes once that run has ended."""

SHORTEST_KEY = 32
"""Minimum length of a signing key in bytes: the length of the digest."""

PURPOSE = "headway signal"
_STEP_MS = 86_400_000
_REFERENCE = re.compile(r"[A-Za-z0-9-]+:[0-9]+", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalUrls:
    """Builds the URLs that receive signals from the outside world.

    Attributes:
        base: base URL of the server, with or without a slash at its end.
        keys: signing keys, newest first; the first one signs. Without keys, URLs are not signed,
            and only a server without authentication accepts them.
    """

    base: str
    keys: tuple[str, ...] = field(default=(), repr=False)

    def url(self, key: str, now: int) -> str:
        """Return the URL that receives signals for a key.

        It is valid for at least 30 days, and expires at midnight UTC, so that repeated calls return
        the same URL.

        Args:
            key: a run's reference, or another key it is known by.
            now: current time in ms UTC.
        """
        plain = f"{self.base.rstrip('/')}/v1/signals/{_quoted(key)}"
        if not self.keys:
            return plain
        expires = -(-(now + LIVES_MS) // _STEP_MS) * _STEP_MS
        signature = sign(self.keys[0], PURPOSE, str(expires), key)
        return f"{plain}?{urlencode({'expires': expires, 'signature': signature})}"


def _quoted(key: str) -> str:
    # Nearly all keys are references; a fast path, because a claim's reply has one for each job.
    return key.replace(":", "%3A") if _REFERENCE.fullmatch(key) else quote(key, safe="")


def find_fault(
    keys: Sequence[str], key: str, *, expires: str, signature: str, now: int
) -> str | None:
    """Return what is wrong with a signed URL; the time taken does not reveal which key fits.

    Args:
        now: current time in ms UTC; a URL is valid until just before it expires.

    Returns:
        The fault, in a few words without secrets; None if the URL is valid.
    """
    fits = is_signed(keys, signature, PURPOSE, expires, key)
    expires_at = whole_number(expires, digits=15)
    if not fits or expires_at is None:
        return "its signature is not this server's"
    return None if now < expires_at else f"it expired at {format_instant(expires_at)}"


def read_signing_keys(written: str | Sequence[str] | None) -> tuple[str, ...]:
    """Read the signing keys from a setting.

    Args:
        written: keys, newest first; in text, separated by commas.

    Raises:
        InvalidValue: a key is too short to be secure, or is not text; the message does not contain
            it.
    """
    if written is None:
        return ()
    parts = written.split(",") if isinstance(written, str) else written
    listed = isinstance(cast("object", parts), Sequence)
    if not listed or any(not isinstance(cast("object", part), str) for part in parts):
        message = f"the signing keys must be text, not {type(written).__name__}"
        raise InvalidValue(message, hint="pass the keys in a list, or separated by commas")
    keys = tuple(part.strip() for part in parts if part.strip())
    for place, key in enumerate(keys, start=1):
        if len(key.encode()) < SHORTEST_KEY:
            message = f"signing key {place} is shorter than {SHORTEST_KEY} bytes"
            raise InvalidValue(message, hint="create one with: openssl rand -base64 32")
    return keys


def sign(secret: str, purpose: str, *parts: str) -> str:
    """Return the signature of a link, for its URL.

    Args:
        purpose: name of this use of the key, so that a signature made for another use is not valid
            here.
        parts: parts of the link; only the last one may contain a line break.
    """
    text = "\n".join((purpose, *parts)).encode("utf-8", "surrogatepass")
    digest = hmac.digest(secret.encode(), text, sha256)
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_signed(keys: Sequence[str], signature: str, purpose: str, *parts: str) -> bool:
    """Return whether one of the keys signed this; the time taken does not reveal which."""
    named = signature.encode("utf-8", "surrogatepass")
    fits = False
    for one in keys:
        fits |= hmac.compare_digest(sign(one, purpose, *parts).encode(), named)
    return fits
