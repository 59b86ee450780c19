"""Dialling by one provider after another: the next one only when there is definitely no call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from headway.core.errors import InvalidValue, ProviderRefused
from headway.systems.telephony.exchange import Exchange
from headway.systems.telephony.voice import CallOrder, Dialled

CALLEE: Literal["callee"] = "callee"


async def dial(
    exchange: Exchange, order: Callable[[str], CallOrder], providers: Sequence[str]
) -> Dialled:
    """Places one call, by the first provider that takes it.

    The next provider is asked only after a refusal that concerns the one before or the number that
    it was to call from. A refusal that concerns who is called would be the next one's too. After an
    outcome that is not known nobody else is asked: there may be a call.

    Args:
        exchange: the providers.
        order: of the call, made for the provider of a name: its `status_url` holds that name.
        providers: their names, in the order in which they are asked; one or more.

    Returns:
        Who has taken the call, and its id there.

    Raises:
        InvalidValue: there is none, or one is unknown; nobody was asked.
        ProviderRefused: there is definitely no call. If several refused it is the first one's
            refusal, since its number was to be used, with the others as its causes; but a refusal
            that concerns who is called is raised as it is.
        ProviderUnsure: there may be a call.
    """
    voices = [exchange.voice(name) for name in dict.fromkeys(providers)]
    if not voices:
        message = "no provider of calls is named"
        raise InvalidValue(message, hint='name one, such as "twilio"')
    refusals: list[ProviderRefused] = []
    for voice in voices:
        try:
            return await voice.dial(order(voice.name))
        except ProviderRefused as refused:
            if refused.concerns == CALLEE:
                raise
            refusals.append(refused)
    raise refusals[0] from (refusals[-1] if len(refusals) > 1 else None)
