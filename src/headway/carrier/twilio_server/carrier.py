"""The carrier: an ASGI application that speaks Twilio's API, over a simulated world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headway.carrier.twilio_server import calls, control, messages
from headway.carrier.twilio_server.replies import must_be_there
from headway.carrier.twilio_server.requests import Refused, check_caller, refused
from headway.carrier.twilio_server.services import CarrierSettings, Services
from headway.carrier.webhooks import HttpApplication
from headway.carrier.world import World
from headway.runtime.timing import REAL, Timing

HOSTS = ["localhost", "127.0.0.1"]
"""Where a carrier may be: it is no protected place."""

Answer = Callable[[Services, Request], Awaitable[Response]]

_API: tuple[tuple[str, str, Answer], ...] = (
    ("POST", "/Calls.json", calls.place),
    ("GET", "/Calls.json", calls.every),
    ("GET", "/Calls/{sid}.json", calls.show),
    ("POST", "/Calls/{sid}.json", calls.change),
    ("POST", "/Messages.json", messages.send),
    ("GET", "/Messages.json", messages.every),
    ("GET", "/Messages/{sid}.json", messages.show),
    ("POST", "/IncomingPhoneNumbers.json", messages.add_number),
    ("GET", "/IncomingPhoneNumbers.json", messages.numbers),
)
_CONTROL: tuple[tuple[str, str, Answer], ...] = (
    ("GET", "/_calls", control.calls),
    ("POST", "/_calls/{sid}/hang_up", control.hang_up),
    ("GET", "/_texts", control.texts),
    ("POST", "/_texts", control.write),
    ("POST", "/_people/{phone}", control.person),
    ("GET", "/_faults", control.faults),
    ("POST", "/_faults", control.faults),
)


class Carrier:
    """A carrier that speaks Twilio's API.

    Attributes:
        settings: what it was started with.
        world: in which its calls are.
    """

    def __init__(self, settings: CarrierSettings, *, timing: Timing = REAL) -> None:
        """Make a carrier; it listens once it is started.

        Args:
            settings: what happens how often, and who may ask.
            timing: real time, but in tests.
        """
        self.settings = settings
        application = HttpApplication(settings.account, settings.token)
        self.world = World(settings, application, timing=timing)
        self._services = Services(
            world=self.world,
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
            exception_handlers=dict.fromkeys((Refused, HTTPException, Exception), refused),
        )

    async def close(self) -> None:
        """End all calls, without webhooks."""
        await self.world.close()

    def _route(self, method: str, path: str, answer: Answer, *, api: bool) -> Route:
        async def endpoint(request: Request) -> Response:
            if api:
                check_caller(request, self._services.account, self._services.secrets)
                must_be_there(self.world, request)
            return await answer(self._services, request)

        return Route(path, endpoint, methods=[method])
