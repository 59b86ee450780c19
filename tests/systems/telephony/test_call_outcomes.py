"""What a provider's reply, or its silence, implies about the call: on real sockets, for both."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from headway.contract.views import RunView
from headway.core.errors import ProviderRefused, ProviderUnsure
from headway.runtime.settings_table import read_table
from headway.runtime.timing import Timing, pause
from headway.systems.telephony import http
from headway.systems.telephony.http import AT_ONCE
from headway.systems.telephony.twilio import Account, TwilioSettings
from headway.systems.telephony.voice import Dialled, Sought, call_of
from headway.systems.telephony.vonage import VonageApplication
from tests.systems.telephony.accounts import (
    ACCOUNT,
    CALL,
    FROM,
    SINCE,
    TO,
    TOKEN,
    UUID,
    order,
    twilio,
    twilio_call,
    twilio_error,
    vonage,
    vonage_made,
)
from tests.systems.telephony.raw_server import (
    Act,
    RawServer,
    babbles,
    cuts,
    cuts_head,
    drips,
    floods,
    hangs,
    hangs_up,
    raw_server,
    says,
)

Provider = Account | VonageApplication
Make = Callable[[str], Provider]

BOTH = pytest.mark.parametrize("make", [twilio, vonage])

NOBODY_KNOWS: dict[str, Act] = {
    "it hangs": hangs,
    "it hangs up without a word": hangs_up,
    "it cuts its reply": cuts,
    "it cuts its reply's head": cuts_head,
    "it answers no HTTP": babbles,
    "its reply never ends": drips,
    "its reply is too long": floods,
    "500": says(500, {"code": 20500, "message": "oops", "title": "oops"}),
    "502 of a proxy": says(502, "<html>bad gateway</html>"),
    "503 with a moment": says(503, "", Retry_After="1"),
    "408": says(408, {"code": 20408, "message": "too slow", "title": "too slow"}),
    "409": says(409, {"code": 20409, "message": "conflict", "title": "conflict"}),
    "425": says(425, {"code": 20425, "message": "early", "title": "early"}),
    "a redirect": says(307, "", Location="/elsewhere"),
    "201 that is no JSON": says(201, "<html>"),
    "201 that is empty": says(201, ""),
    "201 that is a list": says(201, [1]),
    "201 without an id": says(201, {"status": "queued"}),
    "201 with an empty id": says(201, {"sid": "", "uuid": None}),
}


def impatient(make: Callable[..., Provider], url: str, act: Act) -> Provider:
    """Use a short timeout for replies that never end; all others have time on a busy machine."""
    return make(url, timeout="1s") if act in {hangs, drips} else make(url)


def patient(make: Callable[..., Provider], url: str) -> Provider:
    return make(url, timeout="30s")


@asynccontextmanager
async def closing(provider: Provider):
    try:
        yield provider
    finally:
        await provider.close()


@pytest.mark.sampled
@BOTH
@pytest.mark.parametrize("act", NOBODY_KNOWS.values(), ids=NOBODY_KNOWS.keys())
async def test_unclear_reply_is_uncertain_and_requested_once(make: Make, act: Act) -> None:
    async with raw_server(act) as end, closing(impatient(make, end.url, act)) as provider:
        with pytest.raises(ProviderUnsure):
            await provider.dial(order())
        assert [(one.method, one.path) for one in end.seen] == [("POST", end.seen[0].path)]


@BOTH
async def test_endless_reply_does_not_fill_memory(make: Make) -> None:
    async with raw_server(floods) as end, closing(patient(make, end.url)) as provider:
        with pytest.raises(ProviderUnsure, match="longer than"):
            await provider.dial(order())


@BOTH
async def test_connection_that_cannot_be_made_is_a_refusal_of_the_provider(make: Make) -> None:
    async with raw_server(hangs) as gone:
        pass
    async with closing(make(gone.url)) as provider:
        with pytest.raises(ProviderRefused) as refused:
            await provider.dial(order())
        assert refused.value.concerns == "provider"


@BOTH
async def test_unknown_host_name_is_a_refusal_of_the_provider(make: Make) -> None:
    async with closing(make("http://nobody.invalid")) as provider:
        with pytest.raises(ProviderRefused) as refused:
            await provider.dial(order())
        assert refused.value.concerns == "provider"


@BOTH
async def test_tls_failure_before_the_request_is_a_refusal_of_the_provider(make: Make) -> None:
    async with raw_server(hangs) as end:
        url = end.url.replace("http:", "https:")
        async with closing(impatient(make, url, hangs)) as provider:
            with pytest.raises(ProviderRefused) as refused:
                await provider.dial(order())
        assert refused.value.concerns == "provider"
        assert end.seen == []


@BOTH
async def test_port_that_refuses_the_connection_is_a_refusal_of_the_provider(
    make: Make,
) -> None:
    async with AsyncExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        provider = impatient(make, f"http://127.0.0.1:{full.getsockname()[1]}", hangs)
        await stack.enter_async_context(closing(provider))
        with pytest.raises(ProviderRefused) as refused:
            await provider.dial(order())
        assert refused.value.concerns == "provider"


@BOTH
async def test_too_many_requests_are_a_refusal_with_a_time(make: Make) -> None:
    said = {"code": 20429, "message": "too many", "title": "too many"}
    for written, ms in [
        ("7", 7000),
        ("999999999", 3_600_000),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Sat, 01 Jan 2150 00:00:00 GMT", 3_600_000),
        ("soon", None),
    ]:
        act = says(429, said, Retry_After=written)
        async with raw_server(act) as end, closing(make(end.url)) as provider:
            with pytest.raises(ProviderRefused) as refused:
                await provider.dial(order())
            assert (refused.value.concerns, refused.value.retry_after_ms) == ("provider", ms)
            assert refused.value.limited
            assert len(end.seen) == 1


@pytest.mark.parametrize("code", [20429, 21211])
async def test_too_many_requests_are_no_refusal_of_the_callee_whatever_their_code(
    code: int,
) -> None:
    async with (
        raw_server(says(429, twilio_error(429, code))) as end,
        closing(twilio(end.url)) as provider,
    ):
        with pytest.raises(ProviderRefused) as refused:
            await provider.dial(order())
    assert refused.value.concerns == "provider"


async def test_compressed_reply_is_read_once() -> None:
    body = gzip.compress(json.dumps(twilio_call()).encode())

    async def compressed(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 201 Said\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}"
        writer.write(f"{head}\r\n\r\n".encode() + body)

    async with raw_server(compressed) as end, closing(twilio(end.url)) as provider:
        assert await provider.dial(order()) == Dialled("twilio", CALL)


async def test_each_refused_request_gives_its_turn_back() -> None:
    refusal = says(400, twilio_error(400, 21211))
    async with raw_server(refusal) as end, closing(twilio(end.url)) as provider:
        for _ in range(AT_ONCE + 1):
            with pytest.raises(ProviderRefused, match="refused with 400"):
                await provider.dial(order())


@BOTH
@pytest.mark.parametrize("status", [400, 403, 404, 405, 407, 413, 422])
async def test_refusal_of_unknown_form_concerns_the_provider(make: Make, status: int) -> None:
    act = says(status, "<html>who are you?</html>")
    async with raw_server(act) as end, closing(make(end.url)) as provider:
        with pytest.raises(ProviderRefused) as refused:
            await provider.dial(order())
        assert (refused.value.concerns, refused.value.provider_code) == ("provider", "")


@pytest.mark.sampled
@BOTH
@pytest.mark.parametrize("act", NOBODY_KNOWS.values(), ids=NOBODY_KNOWS.keys())
async def test_unreachable_provider_does_not_mean_that_there_is_no_call(
    make: Make, act: Act
) -> None:
    async with raw_server(act) as end, closing(impatient(make, end.url, act)) as provider:
        for call_id in (CALL if make is twilio else UUID, None):
            sought = Sought(ref="j:1", to=TO, from_=FROM, since=SINCE, call_id=call_id)
            with pytest.raises(ProviderUnsure):
                await provider.look_up(sought)


@BOTH
async def test_foreign_404_does_not_mean_that_there_is_no_call(
    make: Make,
) -> None:
    async with raw_server(says(404, "not here")) as end, closing(make(end.url)) as provider:
        sought = Sought(ref="j:1", to=TO, from_=FROM, since=SINCE, call_id=CALL)
        with pytest.raises(ProviderUnsure):
            await provider.look_up(sought)


async def test_many_concurrent_calls_are_each_requested_once() -> None:
    async with (
        raw_server(says(201, twilio_call())) as end,
        closing(patient(twilio, end.url)) as provider,
    ):
        made = await asyncio.gather(*(provider.dial(order()) for _ in range(150)))
        assert made == [Dialled("twilio", CALL)] * 150
        assert len(end.seen) == 150
    async with (
        raw_server(says(201, vonage_made())) as end,
        closing(patient(vonage, end.url)) as other,
    ):
        made = await asyncio.gather(*(other.dial(order()) for _ in range(20)))
        assert made == [Dialled("vonage", UUID)] * 20
        assert len({one.headers["authorization"] for one in end.seen}) == 20


class Counted(Timing):
    """Real time that counts the started timeouts, and can make them expire early."""

    def __init__(self) -> None:
        self.begun = 0
        self.hurries = False

    def limit(self, seconds: float | None) -> asyncio.Timeout:
        self.begun += 1
        return super().limit(0 if self.hurries else seconds)


def counted(url: str, timing: Timing, timeout: str) -> Account:
    table = {"account_sid": ACCOUNT, "auth_token": TOKEN, "base_url": url, "timeout": timeout}
    return Account(read_table("telephony.twilio", TwilioSettings, table), timing=timing)


async def test_connections_are_reused_and_a_bounded_number_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "KEPT_S", 3_600)
    answers = asyncio.Event()

    async def held(writer: asyncio.StreamWriter) -> None:
        await answers.wait()
        await says(201, twilio_call())(writer)

    async def round_of_many() -> None:
        answers.clear()
        end.seen.clear()
        asked = await asked_by_many(provider, end)
        answers.set()
        await asyncio.gather(*asked)

    async with (
        raw_server(says(201, twilio_call())) as end,
        closing(patient(twilio, end.url)) as provider,
    ):
        for _ in range(5):
            await provider.dial(order())
        assert end.links == 1
        end.will(held)
        await round_of_many()
        before = end.links
        await round_of_many()
        assert end.links - before == AT_ONCE - http.KEPT


async def asked_by_many(provider: Provider, end: RawServer) -> list[asyncio.Task[Dialled]]:
    """Start ten more dials than can run at once; return when the maximum is running."""
    asked = [asyncio.create_task(provider.dial(order())) for _ in range(AT_ONCE + 10)]
    async with asyncio.timeout(120):
        while len(end.seen) < AT_ONCE:
            await pause(0)
    return asked


async def test_waiting_request_has_neither_been_sent_nor_lost_time() -> None:
    answers, timing = asyncio.Event(), Counted()

    async def held(writer: asyncio.StreamWriter) -> None:
        await answers.wait()
        await says(201, twilio_call())(writer)

    async with raw_server(held) as end, closing(counted(end.url, timing, "30s")) as provider:
        asked = await asked_by_many(provider, end)
        # Each waiting dial has one timeout for that, and each running one has one more.
        assert timing.begun == AT_ONCE + 10 + AT_ONCE
        assert provider.answers_ms == 60_000
        answers.set()
        assert await asyncio.gather(*asked) == [Dialled("twilio", CALL)] * (AT_ONCE + 10)
        assert len(end.seen) == AT_ONCE + 10
        assert timing.begun == 2 * len(end.seen)


async def test_request_whose_turn_does_not_come_is_refused_temporarily_and_not_sent() -> None:
    timing = Counted()
    async with raw_server(hangs) as end, closing(counted(end.url, timing, "3s")) as provider:
        asked = await asked_by_many(provider, end)
        timing.hurries = True
        with pytest.raises(ProviderRefused) as refused:
            await provider.dial(order())
        assert refused.value.concerns == "provider"
        assert refused.value.retry_after_ms == 1_000
        assert len(end.seen) == AT_ONCE
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


@pytest.mark.parametrize(
    ("status", "code", "concerns"),
    [
        (400, 21211, "callee"),
        (400, 21217, "callee"),
        (400, 21215, "callee"),
        (403, 21215, "callee"),
        (401, 21216, "callee"),
        (403, 21216, "callee"),
        (403, 21408, "callee"),
        (400, 21610, "callee"),
        (400, 21210, "sender"),
        (400, 21212, "sender"),
        (400, 21601, "sender"),
        (400, 21606, "sender"),
        (400, 21616, "sender"),
        (401, 20003, "provider"),
        (403, 20005, "provider"),
        (400, 10001, "provider"),
        (400, 21205, "callee"),
        (404, 20404, "provider"),
        (401, 99999, "provider"),
        (400, 99999, "callee"),
    ],
)
async def test_twilio_refusal_concerns_whom_its_code_says(
    status: int, code: int, concerns: str
) -> None:
    act = says(status, twilio_error(status, code))
    async with raw_server(act) as end, closing(twilio(end.url)) as provider:
        with pytest.raises(ProviderRefused) as refused:
            await provider.dial(order())
    assert (refused.value.concerns, refused.value.provider_code) == (concerns, str(code))
    assert f"of {code}" in str(refused.value)


@pytest.mark.parametrize(
    ("status", "wrong", "concerns"),
    [
        (400, [{"name": "to[0].number", "reason": "no number"}], "callee"),
        (400, [{"name": "from.number", "reason": "not yours"}], "sender"),
        (400, [{"name": "event_url", "reason": "no URL"}], "provider"),
        (400, [{"name": "answer_url[0]", "reason": "no URL"}], "callee"),
        (400, [{"name": name, "reason": "no URL"} for name in ("ncco", "event_url")], "provider"),
        (400, None, "callee"),
        (401, None, "provider"),
        (403, None, "provider"),
    ],
)
async def test_vonage_refusal_concerns_whom_its_invalid_field_says(
    status: int, wrong: object, concerns: str
) -> None:
    said = {"type": "about:x", "title": "Bad", "detail": "so", "invalid_parameters": wrong}
    act = says(status, said)
    async with raw_server(act) as end, closing(vonage(end.url)) as provider:
        with pytest.raises(ProviderRefused) as refused:
            await provider.dial(order())
    assert (refused.value.concerns, refused.value.provider_code) == (concerns, str(status))


@pytest.mark.parametrize(
    ("keys", "known"),
    [
        (("01a221cf-0213-7171-aaf9-e348ea9775a6:1", "twilio:CA1"), ("twilio", "CA1")),
        (("01a221cf-0213-7171-aaf9-e348ea9775a6:1",), None),
        (("twilio:", "twilio"), None),
    ],
)
def test_reference_of_an_earlier_store_is_not_mistaken_for_a_call(
    keys: tuple[str, ...], known: tuple[str, str] | None
):
    run = RunView(
        run=1,
        attempt=1,
        stage="",
        worker="w",
        claimed_at=0,
        handed_at=0,
        ended_at=None,
        outcome="",
        error="",
        permits={},
        blocked_ms=0,
        due_at=0,
        keys=keys,
    )
    assert call_of(run) == known
