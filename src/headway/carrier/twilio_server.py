"""The carrier: an ASGI application with Twilio's API over a simulated phone network.

An additional control API shows its ledger, and changes its people and faults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headway.carrier import twilio_resources
from headway.carrier.ledger import PlacedCall, TextMessage
from headway.carrier.network import PhoneNetwork
from headway.carrier.script import Person, Rates
from headway.carrier.twilio_replies import JsonObject, must_be_there
from headway.carrier.twilio_requests import (
    CarrierSettings,
    FormFields,
    RequestRefused,
    Services,
    check_caller,
    refused,
)
from headway.carrier.webhooks import HttpApplication
from headway.core.errors import InvalidValue
from headway.runtime.settings_table import read_table
from headway.runtime.timing import REAL, Timing


async def _show_ledger(services: Services, request: Request) -> Response:
    """Return the matching calls, and the totals of all."""
    ledger = services.network.ledger
    asked = FormFields(list(request.query_params.multi_items()), ("ref", "to", "from"))
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
        "requests": ledger.requests,
        "webhooks": ledger.posts,
    }
    return JSONResponse(shown)


async def _hang_up(services: Services, request: Request) -> Response:
    # Hang up as the called person.
    sid = request.path_params["sid"]
    call = services.network.ledger.calls.get(sid)
    if call is None:
        raise RequestRefused(20404, f"there is no call {sid[:40]}")
    await services.network.hang_up(sid)
    return JSONResponse(_call(call))


async def _show_texts(services: Services, request: Request) -> Response:
    """Return all messages, outbound and inbound."""
    del request
    return JSONResponse({"texts": [_text(one) for one in services.network.ledger.texts.values()]})


async def _write(services: Services, request: Request) -> Response:
    body = await _object(request)
    fields = [body.get(name) for name in ("from", "to", "text")]
    match fields:
        case [str(from_), str(to), str(words)] if len(body) == 3:
            return JSONResponse(_text(services.network.write(from_, to, words)), 201)
        case _:
            raise RequestRefused(
                20001, 'the body must be {"from": "+1…", "to": "+1…", "text": "…"}'
            )


async def _set_person(services: Services, request: Request) -> Response:
    body = await _object(request)
    try:
        wanted = read_table("person", Person, body)
    except InvalidValue as error:
        raise RequestRefused(20001, str(error)) from error
    services.network.set_person(request.path_params["phone"], wanted)
    return JSONResponse(wanted.model_dump())


async def _faults(services: Services, request: Request) -> Response:
    # Show the rates of faults, and change them.
    if request.method == "POST":
        body = await _object(request)
        try:
            services.network.change(body)
        except InvalidValue as error:
            raise RequestRefused(20001, str(error)) from error
    return JSONResponse(services.network.rates.model_dump(include=set(Rates.model_fields)))


async def _object(request: Request) -> JsonObject:
    try:
        return msgspec.json.decode(await request.body() or b"{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestRefused(20001, f"the body is not a JSON object: {error}") from error


def _call(call: PlacedCall) -> JsonObject:
    return {
        "sid": call.sid,
        "ref": call.plan.ref,
        "to": call.plan.to,
        "from": call.plan.from_,
        "status": call.status.value,
        "request": call.outcome.request.value,
        "placed_at": call.placed_at,
        "answered_at": call.answered_at,
        "ended_at": call.ended_at,
        "duration_s": call.duration_s,
        "heard": call.heard,
        "pressed": call.pressed,
        "problems": call.problems,
    }


def _text(text: TextMessage) -> JsonObject:
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


HOSTS = ["localhost", "127.0.0.1"]
"""Host names under which a carrier is reachable: only local ones, as it is not protected."""

_Answer = Callable[[Services, Request], Awaitable[Response]]

_API: tuple[tuple[str, str, _Answer], ...] = (
    ("POST", "/Calls.json", twilio_resources.place_call),
    ("GET", "/Calls.json", twilio_resources.list_calls),
    ("GET", "/Calls/{sid}.json", twilio_resources.show_call),
    ("POST", "/Calls/{sid}.json", twilio_resources.change_call),
    ("POST", "/Messages.json", twilio_resources.send_text),
    ("GET", "/Messages.json", twilio_resources.list_texts),
    ("GET", "/Messages/{sid}.json", twilio_resources.show_text),
    ("POST", "/IncomingPhoneNumbers.json", twilio_resources.add_number),
    ("GET", "/IncomingPhoneNumbers.json", twilio_resources.list_numbers),
)
_CONTROL: tuple[tuple[str, str, _Answer], ...] = (
    ("GET", "/_calls", _show_ledger),
    ("POST", "/_calls/{sid}/hang_up", _hang_up),
    ("GET", "/_texts", _show_texts),
    ("POST", "/_texts", _write),
    ("POST", "/_people/{phone}", _set_person),
    ("GET", "/_faults", _faults),
    ("POST", "/_faults", _faults),
)


class TwilioCarrier:
    """A carrier with Twilio's API."""

    def __init__(self, settings: CarrierSettings, *, timing: Timing = REAL) -> None:
        """Create a carrier; `app` has to be served."""
        self.settings = settings
        application = HttpApplication(settings.account, settings.token)
        self.network = PhoneNetwork(settings, application, timing=timing)
        self._services = Services(
            network=self.network,
            account=settings.account,
            secrets={settings.account: settings.token, **settings.api_keys},
        )
        root = "/2010-04-01/Accounts/{account}"
        self.app = Starlette(
            routes=[
                *(self._route(how, root + path, answer, api=True) for how, path, answer in _API),
                *(self._route(how, path, answer, api=False) for how, path, answer in _CONTROL),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)],
            exception_handlers=dict.fromkeys((RequestRefused, HTTPException, Exception), refused),
        )

    async def close(self) -> None:
        """End all calls, without webhooks."""
        await self.network.close()

    def _route(self, method: str, path: str, answer: _Answer, *, api: bool) -> Route:
        async def endpoint(request: Request) -> Response:
            if api:
                check_caller(request, self._services.account, self._services.secrets)
                must_be_there(self.network, request)
            return await answer(self._services, request)

        return Route(path, endpoint, methods=[method])
