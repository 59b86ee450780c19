"""The simulated provider in one process: on virtual time, and with its own webhooks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headway.carrier import make
from headway.carrier.application import ApplicationEvent
from headway.carrier.provider import Simulated
from headway.carrier.script import Person, SimulatedSettings
from headway.core.errors import (
    InvalidValue,
    ProviderRefused,
    ProviderUnsure,
    StoreUnavailable,
    Unauthenticated,
)
from headway.lab.virtual_time import VirtualLoop, VirtualTiming, run_virtually
from headway.runtime.settings_table import read_table
from headway.server.hooks.request import HookRequest
from headway.server.listener import ListenAddress, Listener
from headway.systems.telephony.providers import read_telephony
from headway.systems.telephony.texts import Inbound, TextEvent, TextOrder, TextStatus
from headway.systems.telephony.voice import (
    Ask,
    CallEvent,
    CallOrder,
    CallScript,
    CallStatus,
    Fetch,
    NotFound,
    Pressed,
    Say,
    Sought,
)

TO, FROM = "+15550001111", "+15559990000"
START_AT = 1_700_000_000_000
ASK = Ask(text="A job?", answer_url="http://127.0.0.1:9/answer")


@dataclass(kw_only=True)
class Play:
    """A provider on virtual time, and all its reports with their times in ms."""

    loop: VirtualLoop
    provider: Simulated
    told: list[tuple[int, ApplicationEvent]] = field(
        default_factory=list[tuple[int, ApplicationEvent]]
    )
    answer: Callable[[ApplicationEvent], object] = lambda _: None

    async def receive(self, one: ApplicationEvent) -> object:
        self.told.append((self.loop.passed_ms, one))
        return self.answer(one)

    async def dial(self, ref: str = "job:1", to: str = TO, script: CallScript | None = None) -> str:
        return (await self.provider.dial(order(ref, to, script))).call_id

    def person(self, *answers: str, to: str = TO, **more: Any) -> None:
        told = read_table("person", Person, {"answers": answers, **more})
        self.provider.network.set_person(to, told)

    def statuses(self) -> list[CallStatus]:
        return [one.status for _, one in self.told if isinstance(one, CallEvent)]


def order(ref: str = "job:1", to: str = TO, script: CallScript | None = None) -> CallOrder:
    said = script or Say(text="hello")
    return CallOrder(ref=ref, to=to, from_=FROM, script=said, status_url="http://127.0.0.1:9/s")


def playing(
    main: Callable[[Play], Coroutine[Any, Any, None]], **settings: Any
) -> list[tuple[int, ApplicationEvent]]:
    """Play on virtual time; return the reports."""
    read = read_table("simulated", SimulatedSettings, settings)

    async def whole(loop: VirtualLoop) -> list[tuple[int, ApplicationEvent]]:
        async def receive(one: ApplicationEvent) -> object:
            return await play.receive(one)

        provider = Simulated(read, timing=VirtualTiming(loop), on_event=receive, mark="m")
        play = Play(loop=loop, provider=provider)
        await main(play)
        await provider.close()
        return play.told

    return run_virtually(whole, START_AT)


async def many(play: Play) -> None:
    for n in range(1_000):
        script = ASK if n % 2 else Say(text="hello")
        try:
            await play.dial(f"job:{n}", f"+1555{n % 400:07}", script)
        except (ProviderRefused, ProviderUnsure):
            continue
    await play.provider.network.idle()


FAULTS: Mapping[str, Any] = {
    "refused": 0.03, "too_many": 0.02, "unsure": 0.02, "cut": 0.02, "broken": 0.02, "hang_up": 0.1,
    "post_lost": 0.05, "post_late": 0.1, "post_twice": 0.1, "post_disordered": 0.1,
}  # fmt: skip


def test_thousand_concurrent_calls_all_end_and_release_their_line() -> None:
    async def main(play: Play) -> None:
        await many(play)
        ledger = play.provider.network.ledger
        ends = Counter(one.status for one in ledger.calls.values())
        assert ledger.peaks() == {FROM: 1_000}
        assert ledger.live() == {}
        assert ledger.twice() == {}
        assert set(ends) == {
            CallStatus.COMPLETED, CallStatus.BUSY, CallStatus.NO_ANSWER, CallStatus.FAILED,
        }  # fmt: skip
        assert 650 < ends[CallStatus.COMPLETED] < 820

    playing(main)


@pytest.mark.slow
def test_same_seed_gives_the_same_day_and_another_seed_another() -> None:
    first, again = playing(many, **FAULTS), playing(many, **FAULTS)
    assert first == again
    assert first != playing(many, seed=2, **FAULTS)


def test_executed_requests_are_calls_whatever_was_replied() -> None:
    async def main(play: Play) -> None:
        await many(play)
        ledger = play.provider.network.ledger
        done = sum(ledger.requests[one] for one in ("taken", "unsure", "cut"))
        assert len(ledger.calls) == done
        assert ledger.requests.total() == 1_000
        assert all(ledger.requests[one] for one in ("refused", "too_many", "unsure", "broken"))
        assert all(ledger.posts[one] for one in ("sent", "lost", "late", "twice", "disordered"))

    playing(main, **FAULTS)


def test_outcome_of_a_call_does_not_depend_on_other_calls() -> None:
    def ends(numbers: list[str]) -> dict[str, CallStatus]:
        found: dict[str, CallStatus] = {}

        async def main(play: Play) -> None:
            for one in numbers:
                await play.dial(one, one)
            await play.provider.network.idle()
            for call in play.provider.network.ledger.calls.values():
                found[call.plan.to] = call.status

        playing(main)
        return found

    some = [f"+1555{n:07}" for n in range(0, 100, 3)]
    whole = ends([f"+1555{n:07}" for n in range(100)])
    assert ends(some) == {one: whole[one] for one in some}


@pytest.mark.parametrize(
    ("answers", "statuses"),
    [
        ("talks", ["queued", "ringing", "in-progress", "completed"]),
        ("busy", ["queued", "ringing", "busy"]),
        ("ignore", ["queued", "ringing", "no-answer"]),
        ("fails", ["queued", "failed"]),
    ],
)
def test_call_follows_the_person(answers: str, statuses: list[str]) -> None:
    async def main(play: Play) -> None:
        play.person(answers)
        await play.dial()
        await play.provider.network.idle()
        assert play.statuses() == statuses

    playing(main)


def test_call_lasts_as_long_as_the_person_rings_and_talks() -> None:
    async def main(play: Play) -> None:
        play.person("talks", ring_s=7, talk_s=60)
        await play.dial()
        await play.provider.network.idle()

    told = playing(main)
    moments = [(at, one.status) for at, one in told if isinstance(one, CallEvent)]
    assert moments[1:] == [
        (500, CallStatus.RINGING), (7_500, CallStatus.IN_PROGRESS), (67_500, CallStatus.COMPLETED),
    ]  # fmt: skip
    assert [one.duration_s for _, one in told if isinstance(one, CallEvent)][-1] == 60


def test_person_slower_than_the_ringing_does_not_answer() -> None:
    async def main(play: Play) -> None:
        play.person("talks", ring_s=31)
        await play.dial()
        await play.provider.network.idle()
        assert play.statuses()[-1] is CallStatus.NO_ANSWER

    playing(main)


def test_keys_are_reported_once_and_the_reply_is_spoken() -> None:
    async def main(play: Play) -> None:
        play.answer = lambda one: Say(text="Yours.") if isinstance(one, Pressed) else None
        for answers, digits in (("accept", "1"), ("decline", "2"), ("silent", "")):
            play.told.clear()
            play.person(answers)
            sid = await play.dial(f"job:{answers}", script=ASK)
            await play.provider.network.idle()
            pressed = [one for _, one in play.told if isinstance(one, Pressed)]
            assert [(one.call_id, one.ref, one.digits) for one in pressed] == [
                (sid, f"job:{answers}", digits)
            ]
            assert play.provider.network.ledger.calls[sid].heard[-1] == "Yours."

    playing(main)


def test_silent_person_hears_the_prompt_twice_and_is_waited_for_twice() -> None:
    async def main(play: Play) -> None:
        play.person("silent")
        sid = await play.dial(script=ASK)
        await play.provider.network.idle()
        assert play.provider.network.ledger.calls[sid].heard == ["A job?", "A job?"]

    told = playing(main)
    answered = next(at for at, one in told if getattr(one, "status", "") == "in-progress")
    pressed = next(at for at, one in told if isinstance(one, Pressed))
    assert pressed - answered == 2 * (10_000 + 2_000)


def test_person_who_hangs_up_during_the_prompt_presses_nothing() -> None:
    async def main(play: Play) -> None:
        play.person("hangs_up", talk_s=5)
        await play.dial(script=ASK)
        await play.provider.network.idle()
        assert not [one for _, one in play.told if isinstance(one, Pressed)]
        assert play.statuses()[-1] is CallStatus.COMPLETED

    playing(main)


def test_limit_ends_a_call() -> None:
    async def main(play: Play) -> None:
        play.person("talks", talk_s=600)
        made = order()
        limited = CallOrder(
            ref=made.ref, to=TO, from_=FROM, script=made.script, status_url="x", limit_s=30
        )
        await play.provider.dial(limited)
        await play.provider.network.idle()
        (call,) = play.provider.network.ledger.calls.values()
        assert call.duration_s == 30

    playing(main)


@pytest.mark.parametrize(
    ("answers", "concerns", "retry_after_ms"), [("refused", "callee", None),
                                                ("too_many", "provider", 1_000)],
)  # fmt: skip
def test_refusal_makes_no_call(answers: str, concerns: str, retry_after_ms: int | None) -> None:
    async def main(play: Play) -> None:
        play.person(answers)
        with pytest.raises(ProviderRefused) as refused:
            await play.dial()
        assert refused.value.concerns == concerns
        assert refused.value.retry_after_ms == retry_after_ms
        assert not play.provider.network.ledger.calls

    playing(main)


@pytest.mark.parametrize(("answers", "calls"), [("unsure", 1), ("cut", 1), ("broken", 0)])
def test_uncertain_outcome_can_be_a_call_found_by_its_reference(answers: str, calls: int) -> None:
    async def main(play: Play) -> None:
        play.person(answers)
        with pytest.raises(ProviderUnsure):
            await play.dial()
        found = await play.provider.look_up(Sought(ref="job:1", to=TO, from_=FROM, since=0))
        assert len(play.provider.network.ledger.calls) == calls
        assert (found is not NotFound.NO_CALL) == bool(calls)

    playing(main)


@pytest.mark.parametrize(
    ("to", "from_", "concerns"), [("911", FROM, "callee"), (TO, "+15558880000", "sender")]
)
def test_invalid_number_is_refused(to: str, from_: str, concerns: str) -> None:
    async def main(play: Play) -> None:
        asked = CallOrder(ref="a:1", to=to, from_=from_, script=Say(text="x"), status_url="x")
        with pytest.raises(ProviderRefused) as refused:
            await play.provider.dial(asked)
        assert refused.value.concerns == concerns

    playing(main, numbers=[FROM])


def test_look_up_returns_the_state_of_a_call_and_of_no_other() -> None:
    async def main(play: Play) -> None:
        play.person("talks", ring_s=5, talk_s=10)
        sid = await play.dial()
        sought = Sought(ref="job:1", to=TO, from_=FROM, since=0, call_id=sid)
        first = await play.provider.look_up(sought)
        await play.provider.network.idle()
        last = await play.provider.look_up(sought)
        assert isinstance(first, CallEvent)
        assert isinstance(last, CallEvent)
        assert (first.status, first.ref) == (CallStatus.QUEUED, "job:1")
        assert (last.status, last.duration_s) == (CallStatus.COMPLETED, 10)
        other = Sought(ref="job:2", to=TO, from_=FROM, since=0)
        assert await play.provider.look_up(other) is NotFound.NO_CALL
        unknown = Sought(ref="job:1", to=TO, from_=FROM, since=0, call_id="CA0")
        assert await play.provider.look_up(unknown) is NotFound.UNCLEAR

    playing(main)


def test_unreachable_provider_refuses_calls_and_cannot_be_asked() -> None:
    async def main(play: Play) -> None:
        sid = await play.dial()
        play.provider.network.change({"away": True})
        with pytest.raises(ProviderRefused):
            await play.dial("job:2")
        with pytest.raises(ProviderUnsure):
            await play.provider.look_up(Sought(ref="job:1", to=TO, from_=FROM, since=0))
        with pytest.raises(ProviderUnsure):
            await play.provider.hang_up(sid)

    playing(main)


@pytest.mark.parametrize(("after_s", "status"), [(3, "canceled"), (20, "completed")])
def test_hanging_up_ends_a_call_at_once_and_only_once(after_s: int, status: str) -> None:
    async def main(play: Play) -> None:
        play.person("talks", ring_s=10, talk_s=600)
        sid = await play.dial()
        await play.provider.network.pace.pause(after_s * 1_000)
        await play.provider.hang_up(sid)
        assert play.provider.network.ledger.calls[sid].status == status
        assert play.provider.network.ledger.live() == {}
        await play.provider.hang_up(sid)
        await play.provider.network.idle()
        assert play.statuses()[-1] == status
        assert play.statuses().count(CallStatus(status)) == 1
        assert play.told[-1][0] == after_s * 1_000

    playing(main)


def test_call_that_was_never_made_cannot_be_ended() -> None:
    async def main(play: Play) -> None:
        with pytest.raises(ProviderRefused):
            await play.provider.hang_up("CA0")

    playing(main)


def test_line_with_more_calls_than_channels_is_shown() -> None:
    async def main(play: Play) -> None:
        for n in range(3):
            await play.dial(f"job:{n}", f"+1555000000{n}")
        assert play.provider.network.ledger.crowded() == {FROM: 3}
        await play.dial("job:2")
        assert play.provider.network.ledger.twice() == {"job:2": 2}

    playing(main, channels={FROM: 2})


def test_status_that_a_store_refused_is_repeated_on_request() -> None:
    async def main(play: Play) -> None:
        play.person("busy")

        def away_once(one: ApplicationEvent) -> object:
            if len(play.told) == 1:
                message = "away"
                raise StoreUnavailable(message)
            return None

        play.answer = away_once
        await play.dial()
        await play.provider.network.idle()
        assert play.statuses() == ["queued", "queued", "ringing", "busy"]

    playing(main, post_tries=3)


def test_message_is_reported_delivered_and_answered_by_a_message() -> None:
    async def main(play: Play) -> None:
        play.answer = lambda one: "Yours." if isinstance(one, Inbound) else None
        play.person("accept", after_s=60)
        text = TextOrder(ref="job:1", to=TO, from_=FROM, text="A job?")
        sid = await play.provider.send(text)
        await play.provider.network.idle()
        texts = list(play.provider.network.ledger.texts.values())
        assert texts[0].sid == sid
        assert [one.plan.text for one in texts] == ["A job?", "1", "Yours."]

    told = playing(main)
    assert [one.status for _, one in told if isinstance(one, TextEvent)] == [
        TextStatus.SENT, TextStatus.DELIVERED,
    ]  # fmt: skip
    ((at, inbound),) = [(at, one) for at, one in told if isinstance(one, Inbound)]
    assert (inbound.from_, inbound.to, inbound.text) == (TO, FROM, "1")
    assert at == 61_800


def test_persons_answers_go_from_one_call_to_the_next_and_the_last_repeats() -> None:
    async def main(play: Play) -> None:
        await play.dial("job:0")
        await play.provider.network.idle()
        play.person("busy", "ignore", "talks")
        for n in range(1, 5):
            await play.dial(f"job:{n}")
            await play.provider.network.idle()
        ends = [one.status for one in play.provider.network.ledger.calls.values()]
        assert ends[1:] == ["busy", "no-answer", "completed", "completed"]

    playing(main)


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"bussy": 0.1}, "telephony.simulated.bussy"),
        ({"busy": 2}, "telephony.simulated.busy"),
        ({"busy": 0.7, "answer": 0.7}, "telephony.simulated"),
        ({"refused": 0.7, "unsure": 0.7}, "telephony.simulated"),
        ({"ring": ["20s", "1s"]}, "telephony.simulated.ring"),
        ({"ring": 5}, "telephony.simulated.ring"),
        ({"numbers": ["911"]}, "telephony.simulated.numbers"),
        ({"speed": 0}, "telephony.simulated.speed"),
    ],
)
def test_invalid_settings_are_refused_by_their_place(
    settings: dict[str, object], place: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        make(settings)
    assert refused.value.message.startswith(f"{place}")


def test_given_shares_apply_and_the_rest_is_split_among_the_others() -> None:
    rates = SimulatedSettings(busy=0.5)
    assert rates.ends() == pytest.approx(
        {"busy": 0.5, "answer": 7 / 17, "no_answer": 1 / 17, "failed": 0.5 / 17}
    )
    assert rates.changed({"answer": 1}).ends()["busy"] == 0
    assert rates.changed({"ring": "3s"}).ends()["busy"] == 0.5


def test_exchange_knows_the_provider_for_calls_and_for_messages() -> None:
    telephony = read_telephony({"simulated": {"seed": 3}})
    assert telephony.voice("simulated") is telephony.text("simulated")


class Server:
    """A server that receives the provider's webhooks and reads them with the provider."""

    def __init__(self, provider: Simulated) -> None:
        self.provider = provider
        self.read: list[Any] = []
        self.came: list[HookRequest] = []
        self.url = ""
        self.media_type: str | None = None

    async def receive(self, request: Request) -> Response:
        headers = tuple((name.decode(), text.decode()) for name, text in request.headers.raw)
        body = await request.body()
        came = HookRequest(method="POST", url=str(request.url), headers=headers, body=body)
        self.provider.verify(came, 0)
        self.came.append(came)
        readers = (
            self.provider.read_pressed,
            self.provider.read_status,
            self.provider.read_text_status,
            self.provider.read_inbound,
        )
        read = next((found for one in readers if (found := one(came)) is not None), None)
        self.read.append(read)
        if isinstance(read, Pressed):
            spoken = self.provider.speak(Say(text="Yours."))
            return Response(spoken.body, media_type=spoken.media_type)
        if isinstance(read, Inbound):
            content, media_type = self.provider.reply_text("Yours.")
            return Response(content, media_type=media_type)
        asked = self.provider.speak(Ask(text="Fetched?", answer_url=self.url))
        return Response(asked.body, media_type=self.media_type)


@asynccontextmanager
async def serving(**settings: Any) -> AsyncGenerator[tuple[Simulated, Server]]:
    """Run the provider at high speed, and a server that receives its webhooks."""
    provider = make({"speed": 1_000, "answer": 1, **settings})
    server = Server(provider)
    app = Starlette(routes=[Route("/hook", server.receive, methods=["POST"])])
    listener = Listener(app, ListenAddress(port=0))
    server.url = f"{listener.url}/hook"
    running = asyncio.create_task(listener.run())
    await listener.answers()
    try:
        yield provider, server
    finally:
        await provider.close()
        listener.stop()
        await running


async def test_webhooks_are_signed_and_read_back() -> None:
    async with serving(accept=1) as (provider, server):
        url = f"{server.url}?ref=job%3A1"
        made = CallOrder(
            ref="job:1", to=TO, from_=FROM, script=Ask(text="?", answer_url=url), status_url=url
        )
        dialled = await provider.dial(made)
        await provider.network.idle()
    assert {one.call_id for one in server.read} == {dialled.call_id}
    assert {one.ref for one in server.read} == {"job:1"}
    # Each is delivered independently, so they may arrive in any order.
    assert sorted(str(getattr(one, "digits", None) or one.status) for one in server.read) == [
        "1", "completed", "in-progress", "queued", "ringing",
    ]  # fmt: skip
    assert len({one.event for one in server.read}) == 5


@pytest.mark.parametrize("media_type", [None, "text/xml; charset=hex"])
async def test_script_can_be_fetched(media_type: str | None) -> None:
    async with serving(accept=1) as (provider, server):
        server.media_type = media_type
        made = order(script=Fetch(url=server.url))
        dialled = await provider.dial(made)
        await provider.network.idle()
        assert provider.network.ledger.calls[dialled.call_id].heard == ["Fetched?", "Yours."]


async def test_messages_are_reported_and_answered_by_webhooks() -> None:
    async with serving(accept=1) as (provider, server):
        provider.network.inbound_urls[FROM] = server.url
        url = f"{server.url}?ref=job%3A1"
        text = TextOrder(ref="job:1", to=TO, from_=FROM, text="A job?", status_url=url)
        await provider.send(text)
        await provider.network.idle()
        said = [one.plan.text for one in provider.network.ledger.texts.values()]
    told = [getattr(one, "text", None) or str(one.status) for one in server.read]
    # Status reports of the message and the reply to it are delivered independently.
    assert sorted(told) == ["1", "delivered", "sent"]
    assert told.index("sent") < told.index("delivered")
    assert said == ["A job?", "1", "Yours."]


async def test_webhook_of_another_world_or_an_altered_one_is_refused() -> None:
    async with serving() as (provider, server):
        await provider.dial(
            CallOrder(ref="a:1", to=TO, from_=FROM, script=Say(text="x"), status_url=server.url)
        )
        await provider.network.idle()
    came = server.came[-1]
    with pytest.raises(Unauthenticated):
        make({}).verify(came, 0)
    changed = HookRequest(
        method="POST", url=came.url, headers=came.headers, body=came.body + b"&CallStatus=busy"
    )
    with pytest.raises(Unauthenticated):
        provider.verify(changed, 0)


async def test_worlds_that_share_a_key_read_each_others_webhooks() -> None:
    async with serving(key="a key that both know") as (provider, server):
        await provider.dial(
            CallOrder(ref="a:1", to=TO, from_=FROM, script=Say(text="x"), status_url=server.url)
        )
        await provider.network.idle()
    other = make({"key": "a key that both know"})
    other.verify(server.came[-1], 0)
    event = other.read_status(server.came[-1])
    assert event is not None
    assert event.status is CallStatus.COMPLETED
