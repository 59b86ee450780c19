"""Twilio: status callbacks of calls and messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.contract.signals import Signal
from headway.server.hooks.request import HookRequest, read_form
from headway.server.hooks.twilio_signature import check_twilio
from headway.server.hooks.twilio_statuses import status_signals


@dataclass(frozen=True, kw_only=True, slots=True)
class Twilio:
    """Twilio, by an account's tokens.

    A job is found by `?ref=` of the URL that was given as status callback, else by the id of the
    call or message, which the job says with `known_as`.

    Attributes:
        auth_tokens: of the account; several while one replaces another.
        shared_keys: for webhooks that are signed with one.
    """

    auth_tokens: Sequence[str] = field(default=(), repr=False)
    shared_keys: Sequence[str] = field(default=(), repr=False)

    def verify(self, request: HookRequest, now: int) -> None:
        """See `Provider.verify`."""
        del now  # the signature does not say when it was made
        check_twilio(request, auth_tokens=self.auth_tokens, shared_keys=self.shared_keys)

    def signals(self, request: HookRequest) -> Sequence[Signal]:
        """See `Provider.signals`."""
        if not request.is_form:
            return []
        return status_signals(read_form(request.body), request.asked("ref"))
