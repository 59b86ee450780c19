"""Dialling one provider after another: when the second is tried, and when it never is."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib import import_module
from typing import get_type_hints

import pytest

from headway.core.errors import InvalidValue, ProviderError, ProviderRefused, ProviderUnsure
from headway.systems.telephony.providers import PROVIDERS, Telephony, dial
from headway.systems.telephony.texts import TextProvider
from headway.systems.telephony.voice import CallOrder, Dialled, Voice
from tests.systems.telephony.accounts import (
    CALL,
    UUID,
    order,
    twilio,
    twilio_call,
    twilio_error,
    vonage,
    vonage_made,
)
from tests.systems.telephony.raw_server import Act, cuts, hangs, raw_server, says

TAKES = says(201, twilio_call())
BY_VONAGE = says(201, vonage_made())
BAD_NUMBER = says(400, twilio_error(400, 21211))
BAD_SENDER = says(400, twilio_error(400, 21210))
NO_ACCOUNT = says(401, twilio_error(401, 20003))


async def dialled(
    first: Act, second: Act, providers: Sequence[str] = ("twilio", "vonage")
) -> tuple[Dialled | ProviderError, int, int]:
    """Return the result, and how often each provider was called."""

    def made(name: str) -> CallOrder:
        return order(status_url=f"https://headway.test/calls/hooks/{name}?ref=j%3A1")

    # A provider that never answers has a short timeout; the others have time on a busy machine.
    soon = {"timeout": "1s"} if first is hangs else {}
    async with raw_server(first) as one, raw_server(second) as other:
        telephony = Telephony({"twilio": twilio(one.url, **soon), "vonage": vonage(other.url)}, {})
        try:
            result: Dialled | ProviderError = await dial(telephony, made, providers)
        except ProviderError as error:
            result = error
        finally:
            await telephony.close()
        assert all("/hooks/twilio" in seen.form["StatusCallback"][0] for seen in one.seen)
        assert all("/hooks/vonage" in seen.json()["event_url"][0] for seen in other.seen)
        return result, len(one.seen), len(other.seen)


async def test_first_provider_that_accepts_the_call_is_the_only_one_asked() -> None:
    assert await dialled(TAKES, BY_VONAGE) == (Dialled("twilio", CALL), 1, 0)
    found = await dialled(TAKES, BY_VONAGE, ["vonage", "twilio"])
    assert found == (Dialled("vonage", UUID), 0, 1)


@pytest.mark.parametrize("act", [BAD_SENDER, NO_ACCOUNT, says(429, twilio_error(429, 20429))])
async def test_next_one_is_asked_after_a_refusal_of_the_provider_or_the_sender(
    act: Act,
) -> None:
    assert await dialled(act, BY_VONAGE) == (Dialled("vonage", UUID), 1, 1)


async def test_next_one_is_asked_when_the_first_is_unreachable() -> None:
    async with raw_server(hangs) as gone:
        pass
    async with raw_server(BY_VONAGE) as other:
        telephony = Telephony({"twilio": twilio(gone.url), "vonage": vonage(other.url)}, {})
        made = await dial(telephony, lambda _: order(), ["twilio", "vonage"])
        await telephony.close()
    assert made == Dialled("vonage", UUID)


async def test_refusal_about_the_callee_is_not_passed_to_the_next_one() -> None:
    refused, first, second = await dialled(BAD_NUMBER, BY_VONAGE)
    assert isinstance(refused, ProviderRefused)
    assert (refused.concerns, refused.provider_code, first, second) == ("callee", "21211", 1, 0)


@pytest.mark.parametrize("act", [hangs, cuts, says(500, {}), says(201, {}), says(409, {})])
async def test_no_other_provider_is_asked_after_an_unknown_outcome(act: Act) -> None:
    unsure, first, second = await dialled(act, BY_VONAGE)
    assert isinstance(unsure, ProviderUnsure)
    assert (first, second) == (1, 0)


async def test_unknown_outcome_of_the_second_is_not_a_refusal_of_the_first() -> None:
    unsure, first, second = await dialled(BAD_SENDER, cuts)
    assert isinstance(unsure, ProviderUnsure)
    assert (first, second) == (1, 1)


async def test_refusal_of_the_first_counts_if_all_refuse() -> None:
    refused, first, second = await dialled(NO_ACCOUNT, says(400, _vonage_says("from")))
    assert isinstance(refused, ProviderRefused)
    assert (refused.concerns, refused.provider_code, first, second) == ("provider", "20003", 1, 1)
    assert isinstance(refused.__cause__, ProviderRefused)
    assert refused.__cause__.concerns == "sender"
    refused, *_ = await dialled(NO_ACCOUNT, says(400, _vonage_says("to")))
    assert isinstance(refused, ProviderRefused)
    assert refused.concerns == "callee"


async def test_provider_named_twice_is_asked_once() -> None:
    refused, first, second = await dialled(NO_ACCOUNT, BY_VONAGE, ["twilio", "twilio"])
    assert isinstance(refused, ProviderRefused)
    assert (first, second) == (1, 0)


@pytest.mark.parametrize("providers", [[], ["twilio", "tvilio"]])
async def test_missing_provider_is_reported_before_the_first_request(
    providers: list[str],
) -> None:
    async with raw_server(TAKES) as end:
        telephony = Telephony({"twilio": twilio(end.url)}, {})
        with pytest.raises(InvalidValue):
            await dial(telephony, lambda _: order(), providers)
        await telephony.close()
    assert end.seen == []


def _vonage_says(wrong: str) -> dict[str, object]:
    return {"type": "x", "title": "Bad", "invalid_parameters": [{"name": wrong, "reason": "so"}]}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_provider_has_all_methods_of_a_provider_of_calls_or_texts(provider: str):
    made = get_type_hints(import_module(PROVIDERS[provider]).make)["return"]
    wanted = [of for of, does in ((Voice, "dial"), (TextProvider, "send")) if hasattr(made, does)]
    assert wanted
    methods = {name for of in wanted for name in dir(of) if inspect.isfunction(getattr(of, name))}
    assert {name for name in methods if not name.startswith("_")} <= {*dir(made)}
