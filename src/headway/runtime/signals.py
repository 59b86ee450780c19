"""Signals as users say them."""

from __future__ import annotations

from typing import Literal, TypedDict

from headway.contract.signals import Decided, Signal, SignalKind
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.naming import check_name
from headway.runtime.records import encode

Final = Literal["succeeded", "retry", "dead", "accepted", "declined"]


class SignalOptions(TypedDict, total=False):
    """What a signal says: exactly one of `final`, `progress` and `note`.

    Attributes:
        final: settles the job with this outcome.
        progress: the work goes on; `extend` gives it a new deadline.
        note: a label for the record, such as "DELIVERED"; also after the end.
        extend: of a progress: the new time to the deadline from now, as "5m" or a timedelta.
        body: for the record: any value that JSON can carry.
        reason: of a final dead or declined.
        after: of a final retry: the delay, as "90s" or a timedelta.
        candidate: who answers an offer; the candidate whose turn it is if not given.
        offer: it is about an offer alone, such as the end of the call that asked: late once the
            candidate has accepted.
        known_as: a key, such as the provider's id, under which signals find the run from now on.
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

    Args:
        key: a job's reference, or a key that it is known as.
        event: the event's id; each is applied once.
        options: what it says.

    Returns:
        The signal.

    Raises:
        InvalidValue: it says nothing or too much, or a value is not understood.
        PayloadTooLarge: the body is above the limit.
    """
    unknown = sorted(options.keys() - SignalOptions.__annotations__.keys())
    if unknown:
        message = f"a signal has no option {unknown[0]!r}"
        raise InvalidValue(message, hint=f"it has {', '.join(SignalOptions.__annotations__)}")
    kind = _kind(options)
    body, extend, after = options.get("body"), options.get("extend"), options.get("after")
    return Signal(
        key=check_name("key", key),
        event=check_name("event", event),
        kind=kind,
        decided=_decided(options.get("final", "succeeded")),
        body=None if body is None else encode("body", body),
        label=check_name("note", options["note"]) if "note" in options else "",
        extend_ms=None if extend is None else parse_duration(extend),
        after_ms=None if after is None else parse_duration(after),
        reason=options.get("reason", ""),
        candidate=options.get("candidate", ""),
        offer=options.get("offer", False),
        known_as=options.get("known_as", ""),
    )


def _kind(options: SignalOptions) -> SignalKind:
    said = [word for word in ("final", "progress", "note") if options.get(word)]
    if len(said) != 1:
        message = f"a signal says {' and '.join(said) or 'nothing'}"
        raise InvalidValue(message, hint="give one of final=, progress=True and note=")
    return SignalKind(said[0])


def _decided(word: str) -> Decided:
    try:
        return Decided(word)
    except ValueError:
        message = f"a signal's final is {word!r:.40}"
        raise InvalidValue(message, hint=", ".join(Decided)) from None
