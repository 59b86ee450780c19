"""The carrier's control API besides Twilio's: its ledger, its people, its faults."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headway.carrier.ledger import Call, Text
from headway.carrier.script import Person
from headway.carrier.settings import Rates
from headway.carrier.twilio_server.replies import Shape
from headway.carrier.twilio_server.requests import Fields, Refused
from headway.carrier.twilio_server.services import Services
from headway.core.errors import InvalidValue
from headway.runtime.settings_table import read_table


async def calls(services: Services, request: Request) -> Response:
    """All calls, and what a bill would show."""
    ledger = services.world.ledger
    asked = Fields(list(request.query_params.multi_items()), ("ref", "to", "from"))
    found = [
        _call(one)
        for one in ledger.calls.values()
        if asked.get("ref") in {None, one.plan.ref}
        and asked.get("to") in {None, one.plan.to}
        and asked.get("from") in {None, one.plan.from_}
    ]
    shown = {
        "calls": found,
        "live": ledger.live(),
        "peaks": ledger.peaks(),
        "crowded": ledger.crowded(),
        "twice": ledger.twice(),
        "requests": ledger.takings,
        "webhooks": ledger.posts,
    }
    return JSONResponse(shown)


async def hang_up(services: Services, request: Request) -> Response:
    """Hang up on the called person's side.

    Raises:
        Refused: there is no such call.
    """
    sid = request.path_params["sid"]
    call = services.world.ledger.calls.get(sid)
    if call is None:
        raise Refused(20404, f"there is no call {sid[:40]}")
    await services.world.hang_up(sid)
    return JSONResponse(_call(call))


async def texts(services: Services, request: Request) -> Response:
    """All messages, out and in."""
    del request
    return JSONResponse({"texts": [_text(one) for one in services.world.ledger.texts.values()]})


async def write(services: Services, request: Request) -> Response:
    """Send an inbound message to one of the numbers.

    Raises:
        Refused: it is not said who writes what to whom.
    """
    said = await _object(request)
    fields = [said.get(name) for name in ("from", "to", "text")]
    match fields:
        case [str(from_), str(to), str(words)] if len(said) == 3:
            return JSONResponse(_text(services.world.write(from_, to, words)), 201)
        case _:
            raise Refused(20001, 'give {"from": "+1…", "to": "+1…", "text": "…"}')


async def person(services: Services, request: Request) -> Response:
    """Set what the person at a number does from now on."""
    wanted = _read(Person, "person", await _object(request))
    services.world.set_person(request.path_params["phone"], wanted)
    return JSONResponse(wanted.model_dump())


async def faults(services: Services, request: Request) -> Response:
    """Show the rates of faults, and change them.

    Raises:
        Refused: it cannot be changed so.
    """
    if request.method == "POST":
        said = await _object(request)
        try:
            services.world.change(said)
        except InvalidValue as error:
            raise Refused(20001, str(error)) from error
    return JSONResponse(services.world.rates.model_dump(include=set(Rates.model_fields)))


async def _object(request: Request) -> Shape:
    try:
        return msgspec.json.decode(await request.body() or b"{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(20001, f"the body is no object of JSON: {error}") from error


def _read(kind: type[Person], where: str, said: Shape) -> Person:
    try:
        return read_table(where, kind, said)
    except InvalidValue as error:
        raise Refused(20001, str(error)) from error


def _call(call: Call) -> Shape:
    return {
        "sid": call.sid,
        "ref": call.plan.ref,
        "to": call.plan.to,
        "from": call.plan.from_,
        "status": call.status.value,
        "request": call.fate.taking.value,
        "placed_at": call.placed_at,
        "answered_at": call.answered_at,
        "ended_at": call.ended_at,
        "duration_s": call.duration_s,
        "heard": call.heard,
        "pressed": call.pressed,
        "problems": call.problems,
    }


def _text(text: Text) -> Shape:
    return {
        "sid": text.sid,
        "ref": text.plan.ref,
        "to": text.plan.to,
        "from": text.plan.from_,
        "text": text.plan.text,
        "inbound": text.inbound,
        "status": text.status.value,
        "sent_at": text.sent_at,
    }
