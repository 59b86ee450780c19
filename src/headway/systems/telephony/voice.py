"""Calls: the protocol of their providers, and finding the call of a run among theirs."""

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
    """The status of a call; each provider's own words are translated to these."""

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
    """Why a provider names no call that is sought."""

    NO_CALL = "no_call"
    """It lists none that fits, neither queued nor running nor ended."""
    UNCLEAR = "unclear"
    """Several fit and all of them have ended, or it does not know the id any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Say:
    """A script: these words, then the call ends."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A script: these words, then keys are waited for.

    Attributes:
        answer_url: receives the pressed keys from the provider; its reply is spoken next.
        wait_s: how long they are waited for; then the words come once more, then the call ends.
    """

    text: str
    answer_url: str
    digits: int = 1
    wait_s: int = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetch:
    """A script that your application at this URL returns to the provider, in its format."""

    url: str


Script = Say | Ask | Fetch


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOrder:
    """A call to be placed.

    Attributes:
        ref: of the job's run, `id:run`; it comes back with the webhooks.
        to: E.164.
        from_: E.164, one of the provider's numbers.
        script: what happens once the call is answered.
        status_url: receives the call's status from the provider; it contains the ref.
        ring_s: how long it may ring.
        limit_s: the longest call; None for the provider's own limit.
    """

    ref: str
    to: str
    from_: str
    script: Script
    status_url: str
    ring_s: int = 30
    limit_s: int | None = None


class Dialled(NamedTuple):
    """A call that the provider has taken."""

    provider: str
    call_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Sought:
    """A call that the provider is asked about.

    Attributes:
        to: E.164.
        from_: E.164.
        since: the earliest moment at which it can have been placed, ms UTC.
        call_id: the provider's own, if it is known.
        others: the provider's ids of the calls of other runs, which are excluded.
    """

    ref: str
    to: str
    from_: str
    since: int
    call_id: str | None = None
    others: Collection[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CallEvent:
    """What a provider says of a call, by a webhook or when it is asked.

    Attributes:
        ref: of the job's run; None if the webhook does not hold it.
        event: the same whenever the webhook is sent again, another for anything else it says.
        reason: why it failed, in the provider's words; may be empty.
        body: all that it said, for the record.
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
        ref: of the job's run; None if the webhook does not hold it.
        digits: the keys; empty if none were pressed in time.
        event: as in `CallEvent`.
    """

    call_id: str
    ref: str | None
    digits: str
    event: str


class Spoken(NamedTuple):
    """A reply to a webhook: what the provider is to speak."""

    body: bytes
    media_type: str


class TelephonyProvider(Protocol):
    """A provider of calls, of text messages, or of both."""

    @property
    def name(self) -> str:
        """As settings and numbers name it, such as "twilio"."""
        ...

    @property
    def answers_ms(self) -> int:
        """How long a dial or a send takes at most until it returns or raises."""
        ...

    def verify(self, request: HookRequest, now: int) -> None:
        """Accept a webhook that this provider has signed.

        Raises:
            Unauthenticated: it is not signed, or not by the provider, or too long ago.
        """
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class Voice(TelephonyProvider, Protocol):
    """A provider of telephone calls."""

    async def dial(self, order: CallOrder) -> Dialled:
        """Place a call; asked once, it is asked once: nothing here tries again.

        Raises:
            ProviderRefused: there is definitely no call.
            ProviderUnsure: there may be one: a timeout, a cut reply, an error on its side.
        """
        ...

    async def look_up(self, sought: Sought) -> CallEvent | NotFound:
        """Ask the provider for a call's status.

        Without its id it is sought by who called whom and when. It is never guessed: see
        `the_one`.

        Returns:
            Where it stands, or why the provider names none. `NO_CALL` is proof that none was
            placed only once the provider's listing has caught up with what it was asked.

        Raises:
            ProviderUnsure: it cannot be asked now, or one of several that it could be still runs.
        """
        ...

    async def hang_up(self, call_id: str) -> None:
        """End a call, or keep it from being answered; one that has ended stays so.

        Raises:
            ProviderError: the provider could not be reached, or refused.
        """
        ...

    def read_status(self, request: HookRequest) -> CallEvent | None:
        """Return what a proved status webhook says; None if it is of another sort."""
        ...

    def read_pressed(self, request: HookRequest) -> Pressed | None:
        """Return the keys of a verified answer webhook; None if it is of another sort."""
        ...

    def speak(self, script: Say | Ask) -> Spoken:
        """Return the reply to an answer webhook that says these words."""
        ...


Status = TypeVar("Status", bound=StrEnum)


def read_status_word(what: str, words: Mapping[str, Status], said: str) -> Status:
    """Return the status that a webhook's word stands for.

    Raises:
        InvalidValue: the word is unknown.
    """
    status = words.get(said)
    if status is None:
        message = f"the {what}'s status is {said[:40]!r}"
        raise InvalidValue(message, hint=f"known: {', '.join(words)}")
    return status


def known_status(provider: str, words: Mapping[str, CallStatus], said: str) -> CallStatus:
    """Return the status that a provider's word stands for when it is asked about a call.

    Raises:
        ProviderUnsure: the word is unknown.
    """
    status = words.get(said)
    if status is None:
        message = f"{provider} says that the call is {said[:40]!r}, which is not known"
        raise ProviderUnsure(message)
    return status


def whole(said: object) -> int | None:
    """Return a number of seconds, sent as a number or as text; None for anything else."""
    text = str(said)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def call_of(run: RunView) -> tuple[str, str] | None:
    """Return the provider of a run's call and its id there; None if no call is known."""
    for key in run.keys:
        provider, colon, call_id = key.partition(":")
        # After a store was lost, a run is known by its reference of before as well.
        if colon and call_id and not is_job_id(provider):
            return provider, call_id
    return None


def is_of_another_call(event: CallEvent, run: RunView | None) -> bool:
    """Return whether an event is of another call than the one that a run is known to have placed.

    Not every signature covers the URL that names the run, so a signed event could be sent again
    with the reference of another one.
    """
    known = None if run is None else call_of(run)
    return known is not None and known != (event.provider, event.call_id)


SKEW_MS = 5_000
"""How far a provider's clock may be behind the store's."""


def the_one(found: Sequence[CallEvent]) -> CallEvent | NotFound:
    """Return the call that is sought, if it is certain which one it is.

    Returns:
        The only one; `UNCLEAR` if there are several and all of them have ended.

    Raises:
        ProviderUnsure: there are several and one of them still runs: its line must not be freed.
    """
    if len(found) <= 1:
        return found[0] if found else NotFound.NO_CALL
    if all(one.status.ended for one in found):
        return NotFound.UNCLEAR
    message = f"{found[0].provider} knows {len(found)} calls that could be the right one"
    raise ProviderUnsure(message, hint="it is known for certain once they have ended")
