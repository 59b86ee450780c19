"""All errors raised by Headway, in one tree; the branch says who has to act.

HeadwayError
├── CallerError                 the call is invalid: fix it and call again (HTTP 4xx)
│   ├── InvalidValue            a value is not valid
│   ├── UnknownKind             the kind is not declared
│   ├── UnknownGate             the gate is not declared
│   ├── UnknownEntry            the timetable entry is not declared
│   ├── UnknownJob              there is no job with this id
│   ├── UnknownRecord           a system's directory has no record with this name
│   ├── InvalidArguments        the arguments do not match the handler's annotations
│   ├── PayloadTooLarge         arguments, a result or a signal exceed the size limit
│   ├── KeyConflict             the key belongs to a different job, or to a live run of one
│   ├── IdConflict              the id belongs to a job with a different body
│   ├── RevisionConflict        another caller has changed the definition
│   ├── BacklogFull             the lane's backlog limit is reached
│   ├── TooManyRequests         the caller exceeded its request rate (HTTP 429)
│   └── InvalidState            the operation is not possible in the job's state
├── OwnershipError              the caller no longer owns the run: stop, write nothing (HTTP 409)
│   └── LeaseLost               the run is no longer live
├── AccessError                 the caller is not allowed to make this call
│   ├── Unauthenticated         the token is missing, unknown or expired (HTTP 401)
│   └── Forbidden               the token does not permit this (HTTP 403)
├── StoreError                  the store cannot serve the call now
│   ├── StoreUnavailable        unreachable or refusing: nothing was written (HTTP 503)
│   │   ├── StoreReadOnly       its server accepts no writes: a replica, or set to read-only
│   │   ├── ClockSkewed         this process's clock differs too much from the store's
│   │   └── StoreMisconfigured  its URL, credentials, permissions or settings must be corrected
│   ├── OutcomeUnknown          the reply was lost: it may have been written; repeat the call
│   ├── StoreFull               the device is full: nothing was written (HTTP 507)
│   ├── StoreCorrupt            the data is damaged: stop, keep the files, restore
│   ├── SchemaMismatch          the schema is newer or older than this program
│   └── StoreChanged            the store was replaced, or restored to an older state
├── ProviderError               a provider (of calls, messages, …) did not carry out a request
│   ├── ProviderRefused         it was definitely not carried out
│   └── ProviderUnsure          it may have been: query the provider, never repeat the request
├── HandlerError                a handler failed; recorded on its job
│   ├── HandlerTimeout          it exceeded its timeout
│   └── HandlerCancelled        it was asked to stop
└── InvariantBroken             a bug in Headway: reported loudly, with its evidence kept
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


class HeadwayError(Exception):
    """Base class of all errors raised by Headway.

    Attributes:
        code: a stable snake_case identifier, for programs.
        message: one sentence saying what is wrong and where.
        hint: how to fix it; may be empty.
    """

    code: str = "headway_error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Return the message, followed by the hint in parentheses if there is one."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the hint too, so that an error survives being sent to another process."""
        return _rebuild, (type(self), self.message, self.hint)


def _rebuild(kind: type[HeadwayError], message: str, hint: str) -> HeadwayError:
    return kind(message, hint=hint)


class CallerError(HeadwayError):
    """The call is invalid; nothing was written."""

    code = "caller_error"


class InvalidValue(CallerError, ValueError):
    """A value is not valid; nothing was written."""

    code = "invalid_value"


class UnknownKind(CallerError):
    """There is no handler or built-in of this kind; nothing was written."""

    code = "unknown_kind"


class UnknownGate(CallerError):
    """The gate is not declared; nothing was written."""

    code = "unknown_gate"


class UnknownEntry(CallerError):
    """The timetable entry is not declared; nothing was written."""

    code = "unknown_entry"


class UnknownJob(CallerError):
    """There is no job with this id; nothing was written."""

    code = "unknown_job"


class UnknownRecord(CallerError):
    """A system's directory has no record with this name; nothing was written."""

    code = "unknown_record"


class InvalidArguments(CallerError, TypeError):
    """The arguments do not match the handler's annotations; nothing was written."""

    code = "invalid_arguments"


class PayloadTooLarge(CallerError):
    """Arguments, a result or a signal exceed the size limit; nothing was written."""

    code = "payload_too_large"


class KeyConflict(CallerError):
    """The key belongs to a different job, or to a live run of one; nothing was written."""

    code = "key_conflict"


class IdConflict(CallerError):
    """The id already belongs to a job with a different body; nothing was written."""

    code = "id_conflict"


class RevisionConflict(CallerError):
    """Another caller has changed the definition; nothing was written."""

    code = "revision_conflict"


class BacklogFull(CallerError):
    """The lane's backlog limit is reached; nothing was written."""

    code = "backlog_full"


class TooManyRequests(CallerError):
    """The caller exceeded its request rate; nothing was written."""

    code = "too_many_requests"


class InvalidState(CallerError):
    """The operation is not possible in the job's state; nothing was written."""

    code = "invalid_state"


class OwnershipError(HeadwayError):
    """The caller no longer owns what it wants to change; nothing was written."""

    code = "ownership_error"


class LeaseLost(OwnershipError):
    """The run is no longer live; nothing was written, except by a repeated or late hand-over."""

    code = "lease_lost"


class AccessError(HeadwayError):
    """The caller is not allowed to make this call; nothing was written."""

    code = "access_error"


class Unauthenticated(AccessError):
    """The token is missing, unknown or expired; nothing was written."""

    code = "unauthenticated"


class Forbidden(AccessError):
    """The token does not permit this; nothing was written."""

    code = "forbidden"


class StoreError(HeadwayError):
    """The store cannot serve the call now."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The store is unreachable or refused the call; nothing was written."""

    code = "store_unavailable"


class StoreReadOnly(StoreUnavailable):
    """The store's server accepts no writes, as a replica does not; nothing was written."""

    code = "store_read_only"


class ClockSkewed(StoreUnavailable):
    """This process's clock differs too much from the store's; nothing was written."""

    code = "clock_skewed"


class StoreMisconfigured(StoreUnavailable):
    """The store's URL, credentials, permissions or settings are wrong; nothing was written."""

    code = "store_misconfigured"


class OutcomeUnknown(StoreError):
    """The reply was lost; the call may have been carried out. Repeating it is safe."""

    code = "outcome_unknown"


class StoreFull(StoreError):
    """The device is full; nothing was written."""

    code = "store_full"


class StoreCorrupt(StoreError):
    """The data is damaged; nothing was written and nothing was repaired."""

    code = "store_corrupt"


class SchemaMismatch(StoreError):
    """The store's schema is newer or older than this program; nothing was written."""

    code = "schema_mismatch"


class StoreChanged(StoreError):
    """The store was replaced, or restored to an older state; claims are stopped."""

    code = "store_changed"


class ProviderError(HeadwayError):
    """A provider, for example of calls or messages, did not do what was requested."""

    code = "provider_error"


class ProviderRefused(ProviderError):
    """The provider has definitely not done what was requested.

    Attributes:
        concerns: what the refusal applies to: "callee" (the recipient), "sender" (the number used)
            or "provider" (all requests for now).
        retry_after_ms: how long to wait before the next attempt, if the provider said so.
        provider_code: the provider's own error code; empty if it sent none.
        limited: whether the request rate was exceeded (429), so that it may succeed later.
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
    """The provider may have done what was requested; the request must not be repeated."""

    code = "provider_unsure"


class HandlerError(HeadwayError):
    """A handler failed; recorded on its job."""

    code = "handler_error"


class HandlerTimeout(HandlerError):
    """The handler exceeded its timeout."""

    code = "handler_timeout"


class HandlerCancelled(HandlerError):
    """The handler was asked to stop."""

    code = "handler_cancelled"


class InvariantBroken(HeadwayError):
    """A bug in Headway; its evidence is kept."""

    code = "invariant_broken"


@contextmanager
def located(place: str, caught: type[HeadwayError] = InvalidValue) -> Generator[None]:
    """Prefix the messages of errors raised in a block with a place.

    Raises:
        InvalidValue: replaces a caught error, with the same hint.
    """
    try:
        yield
    except caught as error:
        message = f"{place}{error.message}"
        raise InvalidValue(message, hint=error.hint) from None
