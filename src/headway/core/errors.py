"""Every error that Headway raises, in one tree; the branch says who must act.

HeadwayError
├── CallerError                 the call is wrong: fix it and call again (HTTP 400s)
│   ├── InvalidValue            a value that cannot be what it is meant to be
│   ├── UnknownKind             a kind that nothing declares
│   ├── UnknownGate             a gate that nothing declares
│   ├── UnknownEntry            a timetable entry that nothing declares
│   ├── UnknownJob              no job of that id
│   ├── UnknownRecord           no record of that name in a system's directory
│   ├── InvalidArguments        arguments that the handler's annotations refuse
│   ├── PayloadTooLarge         arguments, a result or a signal above the limit
│   ├── KeyConflict             the key names another job: with another body, or a live run
│   ├── IdConflict              the id names another job with another body
│   ├── RevisionConflict        the definition was changed by another caller meanwhile
│   ├── BacklogFull             the lane holds as many jobs as it may
│   ├── TooManyRequests         a caller asks more often than it may (HTTP 429)
│   └── InvalidState            the verb does not apply to the state the job is in
├── OwnershipError              what was held is held no longer: stop, write nothing (HTTP 409)
│   └── LeaseLost               the run is not live any more
├── AccessError                 the call is not this caller's to make
│   ├── Unauthenticated         no token, or none that is known and lives (HTTP 401)
│   └── Forbidden               the token is not for this (HTTP 403)
├── StoreError                  the store cannot do it now
│   ├── StoreUnavailable        refused: nothing was written (HTTP 503)
│   │   └── ClockSkewed         this process's clock is off against the store's
│   ├── OutcomeUnknown          the reply was lost: it may have been written; repeat the call
│   ├── StoreFull               no room on the device: nothing was written (HTTP 507)
│   ├── StoreCorrupt            the data is damaged: stop, keep it, restore
│   ├── SchemaMismatch          the schema is newer or older than this program
│   └── StoreChanged            another identity, or an older time, than was seen before
├── ProviderError               a provider of calls, messages, … did not do it
│   ├── ProviderRefused         definitely not done: nothing was begun
│   └── ProviderUnsure          it may have been done: ask the provider, never repeat it
├── HandlerError                a handler failed; recorded on its job
│   ├── HandlerTimeout          it ran longer than its timeout
│   └── HandlerCancelled        it was asked to stop
└── InvariantBroken             a bug in Headway: loud, and the evidence is kept
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


class HeadwayError(Exception):
    """The base of all errors of Headway.

    Attributes:
        code: a stable snake_case word for programs.
        message: one sentence that says what is wrong and where.
        hint: how to fix it; may be empty.
    """

    code: str = "headway_error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """The message, and the hint in brackets when there is one."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles with its hint, so that an error crosses process borders whole."""
        return _rebuild, (type(self), self.message, self.hint)


def _rebuild(kind: type[HeadwayError], message: str, hint: str) -> HeadwayError:
    return kind(message, hint=hint)


class CallerError(HeadwayError):
    """The call is wrong; nothing was written."""

    code = "caller_error"


class InvalidValue(CallerError, ValueError):
    """A value cannot be what it is meant to be; nothing was written."""

    code = "invalid_value"


class UnknownKind(CallerError):
    """No handler or built-in has this kind; nothing was written."""

    code = "unknown_kind"


class UnknownGate(CallerError):
    """Nothing declares this gate; nothing was written."""

    code = "unknown_gate"


class UnknownEntry(CallerError):
    """Nothing declares this timetable entry; nothing was written."""

    code = "unknown_entry"


class UnknownJob(CallerError):
    """No job has this id; nothing was written."""

    code = "unknown_job"


class UnknownRecord(CallerError):
    """A system's directory has no record of this name."""

    code = "unknown_record"


class InvalidArguments(CallerError, TypeError):
    """The handler's annotations refuse the arguments; nothing was written."""

    code = "invalid_arguments"


class PayloadTooLarge(CallerError):
    """Arguments, a result or a signal is above the limit; nothing was written."""

    code = "payload_too_large"


class KeyConflict(CallerError):
    """The key names a job with another body, or the live run of another; nothing was written."""

    code = "key_conflict"


class IdConflict(CallerError):
    """The id already names a job with another body; nothing was written."""

    code = "id_conflict"


class RevisionConflict(CallerError):
    """Another caller changed the definition meanwhile; nothing was written."""

    code = "revision_conflict"


class BacklogFull(CallerError):
    """The lane holds as many jobs as it may; nothing was written."""

    code = "backlog_full"


class TooManyRequests(CallerError):
    """A caller asks more often than it may; nothing was written."""

    code = "too_many_requests"


class InvalidState(CallerError):
    """The verb does not apply to the job's state; nothing was written."""

    code = "invalid_state"


class OwnershipError(HeadwayError):
    """What was held is held no longer; nothing was written."""

    code = "ownership_error"


class LeaseLost(OwnershipError):
    """The run is lost; nothing was written, but by a hand-over repeated or answered late."""

    code = "lease_lost"


class AccessError(HeadwayError):
    """The call is not this caller's to make; nothing was written."""

    code = "access_error"


class Unauthenticated(AccessError):
    """There is no token, or none that is known and lives; nothing was written."""

    code = "unauthenticated"


class Forbidden(AccessError):
    """The token is not for this; nothing was written."""

    code = "forbidden"


class StoreError(HeadwayError):
    """The store cannot do it now."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The store refused or is out of reach; nothing was written."""

    code = "store_unavailable"


class ClockSkewed(StoreUnavailable):
    """This process's clock is off against the store's by more than a limit; nothing was written."""

    code = "clock_skewed"


class OutcomeUnknown(StoreError):
    """The reply was lost; it may have been written. Repeating the call is safe."""

    code = "outcome_unknown"


class StoreFull(StoreError):
    """The device has no room; nothing was written."""

    code = "store_full"


class StoreCorrupt(StoreError):
    """The data is damaged; nothing was written and nothing was repaired."""

    code = "store_corrupt"


class SchemaMismatch(StoreError):
    """The store's schema does not fit this program; nothing was written."""

    code = "schema_mismatch"


class StoreChanged(StoreError):
    """The store has another identity or an older time than was seen; claims are stopped."""

    code = "store_changed"


class ProviderError(HeadwayError):
    """A provider, of calls or messages for example, did not do what it was asked to do."""

    code = "provider_error"


class ProviderRefused(ProviderError):
    """The provider has definitely not done it: nothing was begun.

    Attributes:
        concerns: "callee" (who was to be reached), "sender" (the number that was to be used) or
            "provider" (all that it is asked now).
        retry_after_ms: when it is worth asking again, if the provider said so.
        provider_code: the provider's own code; empty if it gave none.
        limited: whether it is asked too often (429), and would do it later.
    """

    code = "provider_refused"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        concerns: str = "callee",
        retry_after_ms: int | None = None,
        provider_code: str = "",
        limited: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.concerns = concerns
        self.retry_after_ms = retry_after_ms
        self.provider_code = provider_code
        self.limited = limited


class ProviderUnsure(ProviderError):
    """Whether the provider has done it is not known; it must not be asked to do it again."""

    code = "provider_unsure"


class HandlerError(HeadwayError):
    """A handler failed; recorded on its job."""

    code = "handler_error"


class HandlerTimeout(HandlerError):
    """The handler ran longer than its timeout."""

    code = "handler_timeout"


class HandlerCancelled(HandlerError):
    """The handler was asked to stop."""

    code = "handler_cancelled"


class InvariantBroken(HeadwayError):
    """A bug in Headway; the evidence is kept."""

    code = "invariant_broken"


@contextmanager
def located(place: str, caught: type[HeadwayError] = InvalidValue) -> Generator[None]:
    """Put a place before the message of an error that a block raises.

    Raises:
        InvalidValue: instead of that error, with its hint.
    """
    try:
        yield
    except caught as error:
        message = f"{place}{error.message}"
        raise InvalidValue(message, hint=error.hint) from None
