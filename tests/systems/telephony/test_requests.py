"""Requests sent to providers, and how their replies are interpreted; on real sockets."""

from __future__ import annotations

import logging
from xml.etree.ElementTree import fromstring

import jwt
import pytest

from headway.core.errors import ProviderRefused, ProviderUnsure
from headway.systems.telephony.texts import TextOrder
from headway.systems.telephony.voice import (
    Ask,
    CallEvent,
    CallStatus,
    Dialled,
    Fetch,
    NotFound,
    Say,
    Sought,
)
from tests.systems.telephony.accounts import (
    ACCOUNT,
    APPLICATION,
    CALL,
    FROM,
    MESSAGE,
    NEXT_TOKEN,
    OTHER_CALL,
    OTHER_UUID,
    SINCE,
    TO,
    TOKEN,
    UUID,
    order,
    private_key,
    twilio,
    twilio_call,
    twilio_error,
    vonage,
    vonage_call,
    vonage_list,
    vonage_made,
)
from tests.systems.telephony.raw_server import raw_server, says

CALLS = f"/2010-04-01/Accounts/{ACCOUNT}/Calls"
STATUS_URL = "https://headway.test/calls/hooks/x?ref=0190-job%3A3"


def sought(call_id: str | None = None, *others: str) -> Sought:
    return Sought(ref="j:7", to=TO, from_=FROM, since=SINCE, call_id=call_id, others=others)


def listed(*calls: object) -> dict[str, object]:
    return {"calls": list(calls), "page": 0, "page_size": 50, "next_page_uri": None}


async def test_twilio_request_for_a_call_contains_the_whole_order() -> None:
    async with raw_server(says(201, twilio_call())) as end:
        account = twilio(end.url)
        made = await account.dial(order(Say(text="<Good> & day"), ring_s=25, limit_s=900))
        await account.close()
    [seen] = end.seen
    twiml = seen.form.pop("Twiml")[0]
    assert made == Dialled("twilio", CALL)
    assert (seen.method, seen.path, seen.basic) == ("POST", f"{CALLS}.json", f"{ACCOUNT}:{TOKEN}")
    assert {name: value for name, value in seen.form.items() if name != "Twiml"} == {
        "To": [TO],
        "From": [FROM],
        "StatusCallback": [STATUS_URL],
        "StatusCallbackEvent": ["initiated", "ringing", "answered", "completed"],
        "StatusCallbackMethod": ["POST"],
        "Timeout": ["25"],
        "TimeLimit": ["900"],
    }
    assert [one.text for one in fromstring(twiml)] == ["<Good> & day"]  # noqa: S314  (of our own)


async def test_twilio_fetches_your_script_and_no_limit_is_set_if_none_is_given() -> None:
    async with raw_server(says(201, twilio_call())) as end:
        account = twilio(end.url)
        await account.dial(order(Fetch(url="https://yours.test/script?a=1")))
        await account.close()
    assert end.seen[0].form["Url"] == ["https://yours.test/script?a=1"]
    assert not {"Twiml", "TimeLimit"} & set(end.seen[0].form)


async def test_api_key_acts_for_the_account_or_else_the_first_token() -> None:
    key = {"api_key": "SK" + "9" * 32, "api_secret": "of the key"}
    tokens = {"auth_token": None, "auth_tokens": [NEXT_TOKEN, TOKEN]}
    for more, user in [(key, f"SK{'9' * 32}:of the key"), (tokens, f"{ACCOUNT}:{NEXT_TOKEN}")]:
        async with raw_server(says(201, twilio_call())) as end:
            account = twilio(end.url, **more)
            await account.dial(order())
            await account.close()
        assert (end.seen[0].basic, end.seen[0].path) == (user, f"{CALLS}.json")


async def test_twilios_own_variables_do_not_mix_with_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TWILIO_EDGE", "dublin")
    monkeypatch.setenv("TWILIO_REGION", "ie1")
    async with raw_server(says(201, twilio_call())) as end:
        account = twilio(end.url)
        assert (await account.dial(order())).call_id == CALL
        await account.close()


async def test_question_is_spoken_twice_and_only_the_second_silence_is_reported() -> None:
    account = twilio("http://127.0.0.1:1")
    said = account.speak(Ask(text="Press 1", answer_url="https://h.test/a?ref=j%3A1", wait_s=7))
    await account.close()
    first, second = fromstring(said.body)  # noqa: S314  (of our own)
    assert said.media_type == "application/xml"
    for gather, tells in [(first, "false"), (second, "true")]:
        assert gather.tag == "Gather"
        assert [one.text for one in gather] == ["Press 1"]
        assert gather.attrib == {
            "action": "https://h.test/a?ref=j%3A1",
            "actionOnEmptyResult": tells,
            "input": "dtmf",
            "method": "POST",
            "numDigits": "1",
            "timeout": "7",
        }


async def test_twilio_message_is_requested_once_and_silence_is_uncertain() -> None:
    text = TextOrder(ref="j:1", to=TO, from_=FROM, text="Können Sie?", status_url=STATUS_URL)
    async with raw_server(says(201, {"sid": MESSAGE, "status": "queued"})) as end:
        account = twilio(end.url)
        assert await account.send(text) == MESSAGE
        await account.send(TextOrder(ref="j:1", to=TO, from_=FROM, text="x"))
        end.will(says(500, {}))
        with pytest.raises(ProviderUnsure):
            await account.send(text)
        end.will(says(400, twilio_error(400, 21610)))
        with pytest.raises(ProviderRefused) as refused:
            await account.send(text)
        await account.close()
    assert refused.value.concerns == "callee"
    assert len(end.seen) == 4
    assert end.seen[0].path == f"/2010-04-01/Accounts/{ACCOUNT}/Messages.json"
    assert end.seen[0].form == {
        "To": [TO], "From": [FROM], "Body": ["Können Sie?"], "StatusCallback": [STATUS_URL],
    }  # fmt: skip
    assert "StatusCallback" not in end.seen[1].form


async def test_twilio_call_is_looked_up_by_its_id() -> None:
    ended = twilio_call(status="completed", duration="61")
    async with raw_server(says(200, ended)) as end:
        account = twilio(end.url)
        found = await account.look_up(sought(CALL))
        end.will(says(200, twilio_call(status="in-progress", duration=None)))
        running = await account.look_up(sought(CALL))
        end.will(says(404, twilio_error(404, 20404)))
        nothing = await account.look_up(sought(CALL))
        end.will(says(200, twilio_call(status="new-word")))
        with pytest.raises(ProviderUnsure):
            await account.look_up(sought(CALL))
        await account.close()
    assert [(one.method, one.path) for one in end.seen] == [("GET", f"{CALLS}/{CALL}.json")] * 4
    assert isinstance(found, CallEvent)
    assert (found.call_id, found.ref, found.status) == (CALL, "j:7", CallStatus.COMPLETED)
    assert found.duration_s == 61
    assert isinstance(running, CallEvent)
    assert (running.status, running.duration_s) == (CallStatus.IN_PROGRESS, None)
    assert nothing is NotFound.UNCLEAR


async def test_twilio_call_without_id_is_searched_by_callee_and_time() -> None:
    """A call that waits to be placed has no start time, and is found by its status."""
    at = "Fri, 15 Jan 2027 08:00:03 +0000"
    before = twilio_call(OTHER_CALL, "completed", start_time="Fri, 15 Jan 2027 07:59:00 +0000")
    async with raw_server(
        says(200, listed(before, twilio_call(CALL, "busy", start_time=at)))
    ) as end:
        account = twilio(end.url)
        found = await account.look_up(sought())
        nothing = await account.look_up(sought(None, CALL))
        end.will(says(200, listed(twilio_call(CALL, "queued"))))
        waiting = await account.look_up(sought())
        await account.close()
    assert isinstance(found, CallEvent)
    assert (found.call_id, found.status) == (CALL, CallStatus.BUSY)
    assert nothing is NotFound.NO_CALL
    assert isinstance(waiting, CallEvent)
    assert (waiting.call_id, waiting.status) == (CALL, CallStatus.QUEUED)
    assert [one.query for one in end.seen[:2]] == [
        {"To": [TO], "From": [FROM], "Status": ["queued"], "PageSize": ["50"]},
        {"To": [TO], "From": [FROM], "StartTime>": ["2027-01-15T07:59:55Z"], "PageSize": ["50"]},
    ]


@pytest.mark.parametrize("status", ["ringing", "in-progress", "queued"])
async def test_no_call_is_guessed_among_several_and_no_running_one_counts_as_unknown(
    status: str,
) -> None:
    ended = twilio_call(OTHER_CALL, "completed")
    async with raw_server(says(200, listed(ended, twilio_call(CALL, "no-answer")))) as end:
        account = twilio(end.url)
        assert await account.look_up(sought()) is NotFound.UNCLEAR
        end.will(says(200, listed(ended, twilio_call(CALL, status))))
        with pytest.raises(ProviderUnsure):
            await account.look_up(sought())
        assert isinstance(await account.look_up(sought(None, OTHER_CALL)), CallEvent)
        await account.close()


async def test_hanging_up_is_one_request_whether_a_call_rings_or_is_answered() -> None:
    async with raw_server(says(200, twilio_call(status="completed"))) as end:
        account = twilio(end.url)
        await account.hang_up(CALL)
        # Twilio may return the call's status from just before.
        end.will(says(200, twilio_call(status="in-progress")))
        await account.hang_up(CALL)
        assert [one.form["Status"] for one in end.seen] == [["completed"]] * 2
        no = says(400, twilio_error(400, 21220))
        end.will(no, says(200, twilio_call(status="completed")))
        await account.hang_up(CALL)
        end.will(no, says(200, twilio_call(status="in-progress")))
        with pytest.raises(ProviderRefused):
            await account.hang_up(CALL)
        end.will(says(404, twilio_error(404, 20404)))
        with pytest.raises(ProviderRefused):
            await account.hang_up(CALL)
        await account.close()


async def test_vonage_request_for_a_call_contains_the_whole_order() -> None:
    ask = Ask(text="Press 1", answer_url="https://h.test/a", digits=2, wait_s=30)
    async with raw_server(says(201, vonage_made())) as end:
        application = vonage(end.url + "/at/a/path")
        made = await application.dial(order(ask, ring_s=600, limit_s=900))
        await application.dial(order(Fetch(url="https://yours.test/script")))
        await application.close()
    first, second = end.seen
    assert made == Dialled("vonage", UUID)
    assert (first.method, first.path) == ("POST", "/at/a/path/v1/calls")
    scheme, _, token = first.headers["authorization"].partition(" ")
    claims = jwt.decode(token, private_key().public_key(), algorithms=["RS256"])
    assert (scheme, claims["application_id"]) == ("Bearer", APPLICATION)
    said = first.json()
    [to] = said.pop("to")
    talk, keys = said.pop("ncco")
    assert (to, said.pop("from")) == (
        {"type": "phone", "number": TO[1:]},
        {"type": "phone", "number": FROM[1:]},
    )
    assert said == {
        "event_url": [STATUS_URL],
        "event_method": "POST",
        "ringing_timer": 120,
        "length_timer": 900,
    }
    assert talk == {"action": "talk", "text": "Press 1", "bargeIn": True, "loop": 2}
    assert keys == {
        "action": "input",
        "type": ["dtmf"],
        "dtmf": {"timeOut": 10, "maxDigits": 2},
        "eventUrl": ["https://h.test/a"],
        "eventMethod": "POST",
    }
    assert second.json()["answer_url"] == ["https://yours.test/script"]
    assert "ncco" not in second.json()


async def test_order_that_vonage_cannot_execute_is_refused_without_a_request() -> None:
    async with raw_server(says(201, vonage_made())) as end:
        application = vonage(end.url)
        with pytest.raises(ProviderRefused) as refused:
            await application.dial(order(Say(text="x" * 1501)))
        await application.close()
    # Neither Vonage nor the number can help it: the next lead is called from it immediately.
    assert (refused.value.concerns, end.seen) == ("callee", [])


async def test_vonage_call_is_looked_up_by_its_id() -> None:
    async with raw_server(says(200, vonage_call(duration="61"))) as end:
        application = vonage(end.url)
        found = await application.look_up(sought(UUID))
        end.will(says(404, {"type": "about:404", "title": "Not found"}))
        nothing = await application.look_up(sought(UUID))
        await application.close()
    assert [(one.method, one.path) for one in end.seen] == [("GET", f"/v1/calls/{UUID}")] * 2
    assert isinstance(found, CallEvent)
    assert (found.call_id, found.ref, found.duration_s) == (UUID, "j:7", 61)
    assert nothing is NotFound.UNCLEAR


async def test_vonage_call_without_id_is_searched_on_all_pages() -> None:
    elsewhere = vonage_call(OTHER_UUID, to={"type": "phone", "number": "4915100000000"})
    mine = vonage_call(UUID, "answered")
    pages = [says(200, vonage_list(elsewhere, more=True)), says(200, vonage_list(mine))]
    async with raw_server(*pages) as end:
        application = vonage(end.url)
        found = await application.look_up(sought())
        end.will(says(200, vonage_list(mine)))
        nothing = await application.look_up(sought(None, UUID))
        end.will(says(200, vonage_list(elsewhere, more=True)))
        with pytest.raises(ProviderUnsure):
            await application.look_up(sought())
        await application.close()
    assert isinstance(found, CallEvent)
    assert (found.call_id, found.status) == (UUID, CallStatus.IN_PROGRESS)
    assert nothing is NotFound.NO_CALL
    assert [one.query["record_index"] for one in end.seen[:2]] == [["0"], ["100"]]
    assert end.seen[0].query["date_start"] == ["2027-01-15T07:59:55Z"]


async def test_vonage_hang_up_counts_a_refusal_only_while_the_call_runs() -> None:
    no = says(400, {"type": "about:400", "title": "Bad request"})
    async with raw_server(says(204)) as end:
        application = vonage(end.url)
        await application.hang_up(UUID)
        assert (end.seen[0].method, end.seen[0].json()) == ("PUT", {"action": "hangup"})
        end.will(no, says(200, vonage_call(status="completed")))
        await application.hang_up(UUID)
        end.will(no, says(200, vonage_call(status="answered")))
        with pytest.raises(ProviderRefused):
            await application.hang_up(UUID)
        await application.close()


async def test_no_secret_and_no_number_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with raw_server(says(401, twilio_error(401, 20003))) as end:
        account, application = twilio(end.url), vonage(end.url)
        for provider in (account, application):
            with pytest.raises(ProviderRefused) as refused:
                await provider.dial(order())
            assert TOKEN not in str(refused.value)
            await provider.close()
    headway = [one.getMessage() for one in caplog.records if one.name.startswith("headway")]
    assert not any(TO in one for one in headway)
    assert not any(TOKEN in one.getMessage() for one in caplog.records)
    tokens = [one.headers["authorization"].split()[1] for one in end.seen]
    assert not any(token in one.getMessage() for one in caplog.records for token in tokens)
