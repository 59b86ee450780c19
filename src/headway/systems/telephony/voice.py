"""Calls: the protocol of their providers, and finding the call of a run at a provider."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from headway.contract.views import RunView
from headway.core.check import is_job_id
from headway.core.errors import InvalidValue, ProviderUnsure
from headway.server.hooks.request import HookRequest


class CallStatus(StrEnum):
    """The status of a call; each provider's own statuses are mapped to these."""

    QUEUED = "queued"
    RINGING = "ringing"
    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"
    BUSY = "busy"
    NO_ANSWER = "no-answer"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def ended(self) -> bool:
        """Whether the line is free again."""
        return self not in {CallStatus.QUEUED, CallStatus.RINGING, CallStatus.IN_PROGRESS}


class NotFound(StrEnum):
    """Why a looked-up call was not found."""

    NO_CALL = "no_call"
    """The provider lists no matching call: queued, in progress or ended."""
    UNCLEAR = "unclear"
    """Several ended calls match, or the provider no longer knows the id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Say:
    """A script that speaks a text, then ends the call."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A script that speaks a text, then waits for keys.

    Attributes:
        answer_url: URL that receives the pressed keys from the provider; its reply is spoken next.
        digits: number of keys to wait for.
        wait_s: how long to wait; then the text is repeated once, then the call ends.
    """

    text: str
    answer_url: str
    digits: int = 1
    wait_s: int = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetch:
    """A script that your application at this URL returns to the provider, in its format."""

    url: str


CallScript = Say | Ask | Fetch


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOrder:
    """A call to be placed.

    Attributes:
        ref: reference of the job's run, `id:run`; webhooks return it.
        to: E.164.
        from_: E.164, one of the provider's numbers.
        status_url: URL that receives the call's status from the provider; contains the ref.
        ring_s: maximum ringing time.
        limit_s: maximum length of the call; None for the provider's own limit.
    """

    ref: str
    to: str
    from_: str
    script: CallScript
    status_url: str
    ring_s: int = 30
    limit_s: int | None = None


class Dialled(NamedTuple):
    """A call that the provider has accepted."""

    provider: str
    call_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Sought:
    """A call to look up at the provider.

    Attributes:
        to: E.164.
        from_: E.164.
        since: earliest time at which it can have been placed, ms UTC.
        call_id: the provider's id, if it is known.
        others: the provider's ids of other runs' calls, which are excluded.
    """

    ref: str
    to: str
    from_: str
    since: int
    call_id: str | None = None
    others: Collection[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CallEvent:
    """A call's status, from a webhook or a look-up.

    Attributes:
        ref: reference of the job's run; None if the webhook does not contain it.
        event: id of the event: the same if the webhook is repeated, different for any other event.
        reason: why it failed, in the provider's words; may be empty.
        body: all fields of the webhook, for the record.
    """

    provider: str
    call_id: str
    ref: str | None
    status: CallStatus
    event: str
    duration_s: int | None = None
    reason: str = ""
    body: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True, slots=True)
class Pressed:
    """Keys that were pressed in answer to an `Ask`.

    Attributes:
        ref: reference of the job's run; None if the webhook does not contain it.
        digits: the keys; empty if none were pressed in time.
        event: as in `CallEvent`.
    """

    call_id: str
    ref: str | None
    digits: str
    event: str


class Spoken(NamedTuple):
    """A reply to a webhook with the text for the provider to speak."""

    body: bytes
    media_type: str


class TelephonyProvider(Protocol):
    """A provider of calls, of text messages, or of both."""

    @property
    def name(self) -> str:
        """Name in the settings and of numbers' providers, such as "twilio"."""
        ...

    @property
    def answers_ms(self) -> int:
        """Maximum time until a dial or a send returns or raises."""
        ...

    def verify(self, request: HookRequest, now: int) -> None:
        """Verify the signature of a webhook.

        Args:
            now: current time, ms UTC.

        Raises:
            Unauthenticated: the signature is missing, wrong or too old.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class Voice(TelephonyProvider, Protocol):
    """A provider of telephone calls."""

    async def dial(self, order: CallOrder) -> Dialled:
        """Place a call with one request, without retries.

        Raises:
            ProviderRefused: there is definitely no call.
            ProviderUnsure: there may be a call: after a timeout, an incomplete reply, or an error
                at the provider.
        """
        ...

    async def look_up(self, sought: Sought) -> CallEvent | NotFound:
        """Query the provider for a call's status.

        A call without a known id is found by its two numbers and its time, and only if it is
        unambiguous: see `only_match`.

        Returns:
            The status, or why no call was found. `NO_CALL` proves that none was placed only once
            the provider's listing includes all requested calls.

        Raises:
            ProviderUnsure: the provider cannot be queried now, or several calls match and one of
                them has not ended.
        """
        ...

    async def hang_up(self, call_id: str) -> None:
        """End a call, also before it is answered; without effect on a call that has ended.

        Raises:
            ProviderError: the provider could not be reached, or refused.
        """
        ...

    def read_status(self, request: HookRequest) -> CallEvent | None:
        """Return the event of a verified status webhook; None if it is another kind."""
        ...

    def read_pressed(self, request: HookRequest) -> Pressed | None:
        """Return the keys of a verified answer webhook; None if it is another kind."""
        ...

    def speak(self, script: Say | Ask) -> Spoken:
        """Return the reply to an answer webhook that speaks this script."""
        ...


Status = TypeVar("Status", bound=StrEnum)


def read_status_word(what: str, words: Mapping[str, Status], word: str) -> Status:
    """Return the status for a word in a webhook.

    Args:
        what: subject of the error message.

    Raises:
        InvalidValue: the word is unknown.
    """
    status = words.get(word)
    if status is None:
        message = f"the {what}'s status is {word[:40]!r}, which is unknown"
        raise InvalidValue(message, hint=f"known statuses: {', '.join(words)}")
    return status


def known_status(provider: str, words: Mapping[str, CallStatus], word: str) -> CallStatus:
    """Return the status for a word in a provider's reply to a look-up.

    Raises:
        ProviderUnsure: the word is unknown.
    """
    status = words.get(word)
    if status is None:
        message = f"{provider} reported the call status {word[:40]!r}, which is unknown"
        raise ProviderUnsure(message)
    return status


def whole_seconds(value: object) -> int | None:
    """Return a number of seconds, sent as a number or as text; None for anything else."""
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def call_of(run: RunView) -> tuple[str, str] | None:
    """Return the provider and the call id of a run; None if no call is known."""
    for key in run.keys:
        provider, colon, call_id = key.partition(":")
        # In a rebuilt store, a run's earlier reference is one of its keys as well.
        if colon and call_id and not is_job_id(provider):
            return provider, call_id
    return None


def is_of_another_call(event: CallEvent, run: RunView | None) -> bool:
    """Return whether an event belongs to another call than the known one of a run.

    Not every signature covers the URL, which contains the run's reference, so a signed event could
    be replayed with the reference of another run.
    """
    known = None if run is None else call_of(run)
    return known is not None and known != (event.provider, event.call_id)


SKEW_MS = 5_000
"""How far a provider's clock may lag behind the store's."""


def only_match(found: Sequence[CallEvent]) -> CallEvent | NotFound:
    """Return the only matching call.

    Returns:
        `NO_CALL` if there is none; `UNCLEAR` if there are several and all have ended.

    Raises:
        ProviderUnsure: there are several, and one has not ended, so its line must not be freed.
    """
    if len(found) <= 1:
        return found[0] if found else NotFound.NO_CALL
    if all(one.status.ended for one in found):
        return NotFound.UNCLEAR
    message = f"{found[0].provider} lists {len(found)} matching calls, not all of which have ended"
    raise ProviderUnsure(message, hint="query it again when they have ended")
