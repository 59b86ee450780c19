"""The dashboard's routes: pages, live fragments, forms of actions, sign-in and sign-out."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import cast
from urllib.parse import parse_qsl, quote, urlencode
from uuid import uuid4

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.core.errors import (
    AccessError,
    HeadwayError,
    InvalidArguments,
    InvalidValue,
    InvariantBroken,
    StoreError,
    Unauthenticated,
    UnknownJob,
)
from headway.server.caller import OPEN_CALLER, Caller
from headway.server.problems import status_of
from headway.server.service import Service, System
from headway.web.feed import Feed
from headway.web.page import (
    ENGINE,
    ONCE,
    BoundAction,
    DashboardPage,
    FormValues,
    HasPages,
    PageView,
    TemplateContext,
    find_routes,
)
from headway.web.pages import PAGES
from headway.web.rendering import CSP, MEDIA_TYPES, environment, fragments, link, render, static
from headway.web.shared_reads import SharedReads
from headway.web.sign_in import (
    BASE,
    authorization,
    check_form,
    clear_message,
    forget_token,
    form_token,
    inside,
    keep_token,
    leave_message,
    message_of,
    token_of,
)

MOST_VALUE = 4_000
"""Maximum length of a query string value, in characters."""
MOST_FORM = 65_536
"""Maximum size of a form, in bytes."""
QUIET_S = 15.0
"""Seconds without a message after which a stream sends an event that shows that it is alive."""
RETRY_MS = 1_000
"""How soon a browser reconnects to a broken stream."""
_NO_ACTION = UnknownJob("there is no such action", hint="go back, and reload the page")
_NO_FILE = UnknownJob("there is no such file")
_KEEP = {"Cache-Control": "public, max-age=31536000, immutable"}

_log = logging.getLogger("headway.web")


def add_dashboard(
    app: FastAPI,
    service: Service,
    systems: Sequence[System] = (),
    others: Sequence[DashboardPage] = (),
) -> Dashboard:
    """Add the dashboard's routes to a built server.

    Args:
        app: The server; the dashboard's actions call its routes.
        systems: Systems whose pages are shown after the engine's.
        others: Pages shown after the systems'.

    Raises:
        InvariantBroken: a page or an action is declared incorrectly.
    """
    of_systems = (page for one in systems if isinstance(one, HasPages) for page in one.pages)
    dashboard = Dashboard(service, (*PAGES, *of_systems, *others), app)
    app.router.routes.extend(dashboard.routes())
    app.router.default = dashboard.unknown(app.router.default)
    return dashboard


class Dashboard:
    """Serves the browser's requests under `/ui`."""

    def __init__(self, service: Service, pages: Sequence[DashboardPage], app: FastAPI) -> None:
        """Connect the parts; read nothing from the store."""
        self._service = service
        self._pages = pages
        actions = [one for page in pages for one in page.actions]
        self._actions = find_routes(actions, app.router.routes)
        self._reads = SharedReads(service.store, service.timing)
        self.feed = Feed(service, self._facts)
        _check(pages)

    def routes(self) -> list[Route]:
        """Return the routes of the dashboard."""
        get, both = ["GET"], ["GET", "POST"]
        found = [
            Route("/", self._home, methods=get),
            Route(f"{BASE}/", self._home, methods=get),
            Route(f"{BASE}/-/static/{{name}}", self._static, methods=get),
            Route(f"{BASE}/-/sign-in", self._sign_in, methods=both),
            Route(f"{BASE}/-/sign-out", self._sign_out, methods=["POST"]),
            Route(f"{BASE}/-/do/{{action}}", self._act, methods=both),
        ]
        for page in self._pages:
            shown = _PageEndpoint(self, page)
            found.append(Route(shown.path, shown, methods=get))
        return found

    def unknown(self, otherwise: ASGIApp) -> ASGIApp:
        """Return the app for unknown paths: below `/ui`, browsers get an HTML page.

        Everything else goes to `otherwise`.
        """

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["path"].startswith(f"{BASE}/"):
                request = Request(scope, receive)
                if "text/html" in request.headers.get("accept", ""):
                    path = scope["path"][:200]
                    error = UnknownJob(f"there is no page {path}", hint="the menu lists all pages")
                    await (await self._error_page(request, error))(scope, receive, send)
                    return
            await otherwise(scope, receive, send)

        return answer

    async def show(self, page: DashboardPage, request: Request) -> Response:
        """Return a page, or the event stream of its fragments."""
        live = request.headers.get("accept") == "text/event-stream"
        try:
            caller = await self._service.tokens.admit(authorization(request), page.permission)
            page.reach(caller)
            given = {**request.query_params, **cast("Mapping[str, str]", request.path_params)}
            names = {*page.params, *request.path_params}
            values = _checked({name: given.get(name, "")[:MOST_VALUE] for name in names})
            view = PageView(service=self._service, reads=self._reads, caller=caller, values=values)
            if live:
                self.feed.check_room()
                return StreamingResponse(
                    self._stream(request, page, view), media_type="text/event-stream"
                )
            facts = await self._facts(page, view)
        except HeadwayError as error:
            return await self._error_page(request, error, plain=live)
        shell = await self._shell(request, caller, page.title, page.path)
        around = {**shell, "page": page}
        return _html(request, render(page.package, page.template, {**facts, **around}))

    async def _facts(self, page: DashboardPage, view: PageView) -> TemplateContext:
        """Return the context of a page's template."""
        facts = dict(await page.read(view))
        if "now" not in facts:
            facts["now"] = await self._service.now()
        query = {name: value for name, value in view.values.items() if value}
        path = page.path
        for name in view.values:
            path = path.replace(f"{{{name}}}", quote(view.values[name], safe=""))
        back = link(path, **{name: query[name] for name in page.params if name in query})

        def do(name: str, label: str = "", **values: object) -> Mapping[str, object] | None:
            """Return an action's button; None if the route would refuse the caller."""
            found = self._actions[name]
            texts = {key: str(value) for key, value in values.items()}
            if not found.may(view.caller, texts):
                return None
            return {
                "url": link(f"-/do/{name}", **texts, back=back),
                "label": label or found.action.label,
                "danger": found.action.danger,
            }

        return {**facts, "can": do, "values": view.values, "here": page.path, "caller": view.caller}

    async def _stream(
        self, request: Request, page: DashboardPage, view: PageView
    ) -> AsyncIterator[str]:
        timing, caller = self._service.timing, view.caller
        # Joined only once the stream is iterated: a browser that has already disconnected never
        # starts it, so its `finally` would not run either.
        stream, watcher = self.feed.join(page, view)
        try:
            yield f"retry: {RETRY_MS}\n\n"
            while True:
                text = "event: alive\ndata: {}\n\n"
                with suppress(TimeoutError):
                    async with timing.limit(QUIET_S):
                        message = await watcher.next()
                    if message is None:
                        return
                    text = f"id: {message.id}\nevent: {message.event}\ndata: {message.data}\n\n"
                if not await self._service.tokens.may_stay(authorization(request), caller):
                    return
                yield text
        finally:
            self.feed.leave(stream, watcher)

    async def _act(self, request: Request) -> Response:
        """Show an action's form (GET), or perform the action (POST)."""
        found = self._actions.get(request.path_params["action"])
        if found is None:
            return await self._error_page(request, _NO_ACTION, plain=_is_script(request))
        try:
            caller = await self._service.tokens.admit(authorization(request), found.permission)
            if request.method == "POST":
                return await self._perform(request, caller, found, await _form(request))
            given = request.query_params
            # Checkboxes with the same name form one list.
            values = {name: ",".join(given.getlist(name))[:MOST_VALUE] for name in given}
            return await self._form_page(request, caller, found, _checked(values))
        except HeadwayError as error:
            return await self._error_page(request, error, plain=_is_script(request))

    async def _form_page(
        self,
        request: Request,
        caller: Caller,
        found: BoundAction,
        given: FormValues,
        wrong: str = "",
    ) -> Response:
        action = found.action
        of = {name: given.get(name, "") for name in action.of}
        found.check(caller, of)
        values = {**{one.name: "" for one in action.fields}, **of}
        if action.prefill is not None:
            view = PageView(service=self._service, reads=self._reads, caller=caller, values=of)
            values |= await action.prefill(view)
        values |= {one.name: given[one.name] for one in action.fields if one.name in given}
        facts = {
            "action": action,
            "title_of": _filled(action.title, values),
            "of": of,
            "values": values,
            "wrong": wrong,
            "danger": action.danger,
            "form": form_token(request),
            "once": uuid4().hex,
            "back": inside(given.get("back", "")),
            "curl": self._curl(request, caller, found, values),
            "to": link(f"-/do/{action.name}"),
        }
        status = 422 if wrong else 200
        if _is_script(request):
            form = fragments(ENGINE, "form.html", ("ask",), facts)["ask"]
            return _html(request, form, status)
        shell = await self._shell(request, caller, action.label)
        return _html(request, render(ENGINE, "form.html", {**facts, **shell}), status)

    async def _perform(
        self, request: Request, caller: Caller, found: BoundAction, form: FormValues
    ) -> Response:
        check_form(request, form.get("form", ""))
        values = {name: form.get(name, "") for name in found.action.of}
        found.check(caller, values)
        values |= {one.name: form.get(one.name, "") for one in found.action.fields}
        values[ONCE] = form.get(ONCE, "")
        try:
            reply_values = await found.do(request, caller, values)
        except (InvalidValue, InvalidArguments) as error:
            # Name the form's field: the user does not see that the fields become a body.
            wrong = error.message.removeprefix("body.")
            wrong = f"{wrong}: {error.hint}" if error.hint else wrong
            return await self._form_page(request, caller, found, {**form, **values}, wrong)
        self._reads.expire()
        self.feed.refresh()
        message = _filled(found.action.done, {**reply_values, **values})
        if _is_script(request):
            return JSONResponse({"said": message})
        reply = RedirectResponse(inside(form.get("back", "")), 303)
        leave_message(request, reply, message)
        return reply

    def _curl(
        self, request: Request, caller: Caller, found: BoundAction, values: FormValues
    ) -> str:
        base = self._service.options.public_url or str(request.base_url).rstrip("/")
        example = dict(values)
        if "reason" in example and not example["reason"]:
            example["reason"] = "why"
        try:
            return found.curl(base, example, token=caller is not OPEN_CALLER)
        except HeadwayError:
            return ""

    async def _sign_in(self, request: Request) -> Response:
        """Show the sign-in form, or accept the token that it sends."""
        next_path = inside(request.query_params.get("next", ""))
        wrong = ""
        try:
            if request.method == "POST":
                form = await _form(request)
                check_form(request, form.get("form", ""))
                token = form.get("token", "").strip()
                if await self._service.tokens.caller(token) is not None:
                    reply = RedirectResponse(next_path, 303)
                    keep_token(request, reply, token)
                    return reply
                wrong = "This token is not known, or has ended."
            elif await self._service.tokens.is_open():
                return RedirectResponse(next_path, 303)
        except HeadwayError as error:
            return await self._error_page(request, error)
        facts = {
            "form": form_token(request),
            "wrong": wrong,
            "to": f"{BASE}/-/sign-in?{urlencode({'next': next_path})}",
        }
        shell = self._shell_without_caller(request, "Sign in")
        return _html(
            request,
            render(ENGINE, "sign-in.html", {**facts, **shell}),
            401 if wrong else 200,
        )

    async def _sign_out(self, request: Request) -> Response:
        try:
            check_form(request, (await _form(request)).get("form", ""))
        except HeadwayError as error:
            return await self._error_page(request, error)
        reply = RedirectResponse(f"{BASE}/-/sign-in", 303)
        forget_token(request, reply)
        return reply

    async def _home(self, _: Request) -> Response:
        return RedirectResponse(BASE, 307)

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in MEDIA_TYPES:
            return await self._error_page(request, _NO_FILE)
        return Response(static(name), media_type=MEDIA_TYPES[name], headers=_KEEP)

    async def _error_page(
        self, request: Request, error: HeadwayError, *, plain: bool = False
    ) -> Response:
        """Return an error as a page, or as JSON for the script (`plain`).

        Without a valid token, redirect to the sign-in form.
        """
        status = status_of(error)
        if status >= 500 and not isinstance(error, StoreError):
            _log.error("dashboard request failed error=%s", error, exc_info=error)
        if plain:
            return JSONResponse({"wrong": error.message, "hint": error.hint}, status)
        if isinstance(error, Unauthenticated):
            whole = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            to = whole if request.method == "GET" else ""
            reply = RedirectResponse(f"{BASE}/-/sign-in?{urlencode({'next': inside(to)})}", 303)
            if token_of(request) is not None:
                forget_token(request, reply)
                leave_message(
                    request, reply, "Your token has ended or was revoked: nothing was changed."
                )
            return reply
        titles = {403: "Refused", 404: "Not found", 422: "Not understood"}
        shell = self._shell_without_caller(request, titles.get(status, "Not now"))
        facts = {"error": error, "status": status}
        try:
            caller = await self._service.tokens.caller(token_of(request))
            if caller is not None:
                shell = await self._shell(request, caller, cast("str", shell["title"]))
        except StoreError:
            pass  # the page reports the store's error anyway
        return _html(request, render(ENGINE, "refused.html", {**facts, **shell}), status)

    async def _shell(
        self, request: Request, caller: Caller, title: str, here: str | None = None
    ) -> TemplateContext:
        """Return the context of the layout around every page.

        Args:
            here: The page's path. The menu marks it, or the nearest page above it.
        """
        seen = [page for page in self._pages if page.menu and _may_see(caller, page)]
        menu: dict[str, list[DashboardPage]] = {}
        for one in seen:
            menu.setdefault(one.group, []).append(one)
        return {
            **self._shell_without_caller(request, title),
            "menu": list(menu.items()),
            "here": here,
            "marked": max(
                (one.path for one in seen if _holds(one.path, here)), key=len, default=None
            ),
            "who": None if caller is OPEN_CALLER else caller.name,
            "form": form_token(request),
        }

    def _shell_without_caller(self, request: Request, title: str) -> TemplateContext:
        return {
            "title": title,
            "menu": [],
            "who": None,
            "message": message_of(request),
            "here": None,
            "live": False,
            "page": None,
        }


class _PageEndpoint:
    """The endpoint of a page.

    Attributes:
        path: The route's path, under which its requests are counted.
    """

    def __init__(self, dashboard: Dashboard, page: DashboardPage) -> None:
        self.path = f"{BASE}/{page.path}" if page.path else BASE
        self._dashboard = dashboard
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self
        reply = await self._dashboard.show(self._page, Request(scope, receive))
        await reply(scope, receive, send)


def _check(pages: Sequence[DashboardPage]) -> None:
    for page in pages:
        blocks = environment(page.package).get_template(page.template).blocks
        if missing := set(page.fragments) - set(blocks):
            message = f"the template {page.template} has no block {', '.join(sorted(missing))}"
            raise InvariantBroken(message)
    if len({page.path for page in pages}) < len(pages):
        message = "two pages have one path"
        raise InvariantBroken(message)


def _holds(path: str, here: str | None) -> bool:
    """Return whether `path` is `here` or a parent of it."""
    return here is not None and f"{here}/".startswith(f"{path}/")


def _may_see(caller: Caller, page: DashboardPage) -> bool:
    try:
        caller.check(page.permission)
        page.reach(caller)
    except AccessError:
        return False
    return True


def _filled(text: str, values: FormValues) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


async def _form(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body() if kind == "application/x-www-form-urlencoded" else b""
    pairs: list[tuple[str, str]] | None = None
    if 0 < len(body) <= MOST_FORM:
        with suppress(ValueError):
            pairs = parse_qsl(
                body.decode(), keep_blank_values=True, max_num_fields=100, errors="strict"
            )
    if pairs is None:
        message = "this is not a form of this dashboard"
        raise InvalidValue(message, hint="go back, and reload the page")
    return _checked({name: value.replace("\r\n", "\n") for name, value in pairs})


def _checked(values: dict[str, str]) -> dict[str, str]:
    # No store has text with a NUL, and some refuse to look for it.
    for name, value in values.items():
        if "\0" in value:
            message = f"{name} contains NUL"
            raise InvalidValue(message, hint="remove the NUL character")
    return values


def _is_script(request: Request) -> bool:
    """Return whether the page's script sent the request; it shows the reply within the page."""
    return request.headers.get("x-headway-script") == "1"


def _html(request: Request, html: str, status: int = 200) -> HTMLResponse:
    reply = HTMLResponse(html, status, headers={"Content-Security-Policy": CSP})
    clear_message(request, reply)
    return reply
