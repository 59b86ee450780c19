"""POST /v1/signals/{key} and /hooks/{provider}: signals about jobs, webhooks of providers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

from fastapi import Depends, Path, Request, Response

from headway.contract.signals import Signal, SignalReply
from headway.contract.views import JobQuery
from headway.core.errors import InvalidValue, Unauthenticated, UnknownJob
from headway.core.naming import whole_number
from headway.runtime.signals import SignalUrls, find_fault
from headway.server.access import Policy, Public
from headway.server.caller import Caller, Permission
from headway.server.hooks.request import (
    PROVIDER_BODY,
    HookRequest,
    is_object,
    only,
    read_form,
    received,
)
from headway.server.hooks.signals import VERBS, SignalBody, deliver, digest_id, job_of, signal_of
from headway.server.hooks.twilio import Form, is_status, status_signals
from headway.server.replies import answer, reply_model
from headway.server.routing import TheService, router
from headway.server.service import Service

SIGNED = Caller(id="signal-url", name="signal URL", may=frozenset({Permission.SIGNAL}))
"""The caller with a signed URL, which contains the key that it may signal."""


class TokenOrSignature(Policy):
    """Accepts requests with a signed URL, and others like `Policy`."""

    async def admit(self, request: Request) -> None:
        """Authenticate a request before its body is read.

        Raises:
            Unauthenticated: the URL's signature is invalid or has expired, or the token is missing
                or invalid.
            Forbidden: the token does not have the permission.
            TooManyRequests: the caller's request rate is above the limit.
        """
        query = request.query_params
        expires, signature = query.getlist("expires"), query.getlist("signature")
        if not expires and not signature:
            await super().admit(request)
            return
        service = cast("Service", request.app.state.service)
        fault: str | None = "it does not have exactly one signature"
        if len(expires) == len(signature) == 1:
            fault = find_fault(
                service.options.signing_keys,
                request.path_params["key"],
                expires=expires[0],
                signature=signature[0],
                now=service.timing.wall_at(),
            )
        if fault is not None:
            message = f"the signal URL is not valid: {fault}"
            raise Unauthenticated(message, hint="use the complete URL from job.signal_url")
        request.state.caller = SIGNED


def signal_urls(service: Service, base: str) -> SignalUrls:
    """Return the signed URLs at which outside systems signal runs.

    Args:
        base: base URL if the server has no `public_url`.
    """
    options = service.options
    return SignalUrls(base=options.public_url or base, keys=options.signing_keys)


_FLAGS: Mapping[str, bool] = {
    **dict.fromkeys(("true", "1", "yes", ""), True),
    **dict.fromkeys(("false", "0", "no"), False),
}


def read_callback(key: str, webhook: HookRequest) -> Sequence[Signal]:
    """Return the signals of a callback, at least one, in the order to send them.

    The fields of a signal are in the JSON, the form or the URL; if they are in the URL, any
    content becomes the signal's body. A form may also be a status callback of Twilio.

    Raises:
        InvalidValue: the fields are not those of a signal, or the content is malformed.
    """
    query = _fields(read_form(webhook.query))
    # Many clients send content without an explicit type as a form.
    is_form = webhook.is_form and not webhook.body.lstrip().startswith(b"{")
    if any(verb in query for verb in VERBS):
        query.setdefault("event", digest_id(webhook.query.encode() + b"\n" + webhook.body))
        return [signal_of(key, {**query, "body": _content(webhook, is_form=is_form)})]
    if not is_form:
        content = webhook.json()
        if not is_object(content):
            message = "a signal must be a JSON object"
            raise InvalidValue(message, hint='send {"event": "evt-7", "final": "succeeded"}')
        return [signal_of(key, content)]
    form = read_form(webhook.body)
    if is_status(form):
        signals = status_signals(form, key)
        if not signals:
            message = "the status callback has no valid id of a call or message"
            raise InvalidValue(message)
        return signals
    fields = _fields(form)
    fields.setdefault("event", digest_id(webhook.body))
    return [signal_of(key, fields)]


def _content(webhook: HookRequest, *, is_form: bool) -> object:
    if not webhook.body:
        return None
    return dict(read_form(webhook.body)) if is_form else webhook.json()


def _fields(form: Form) -> dict[str, object]:
    """Return the fields of a signal from text values; other names are ignored."""
    found: dict[str, object] = {}
    for name in SignalBody.model_fields:
        text = only(form, name)
        if text is not None:
            found[name] = _typed(name, text)
    return found


def _typed(name: str, text: str) -> object:
    if name == "progress":
        return _FLAGS.get(text.lower(), text)
    number = whole_number(text, digits=15) if name in {"extend", "after"} else None
    return text if number is None else number


ROUTES = router("signals")

_SCHEMA: dict[str, Any] = SignalBody.model_json_schema()
_SIGNED = "Part of a signed URL, as returned by `job.signal_url`; no token is needed then."


def _parameter(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": kind}, "description": _SIGNED}


@ROUTES.post(
    "/v1/signals/{key:path}",
    summary="Signal a job",
    response_model=reply_model(SignalReply),
    openapi_extra={
        "parameters": [_parameter("expires", "integer"), _parameter("signature", "string")],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": _SCHEMA,
                    "example": {"event": "evt-7", "final": "succeeded", "body": {"seconds": 42}},
                },
                "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
            },
        },
    },
)
async def signal(
    request: Request,
    service: TheService,
    caller: Annotated[Caller, Depends(TokenOrSignature(Permission.SIGNAL))],
    key: Annotated[
        str,
        Path(description="Reference of a run, `id:run`, or another of its keys."),
    ],
) -> Response:
    """Send a signal about a job from an outside system; each event is applied once.

    The answer is definite: `applied`, `already`, `kept` (no run awaits this key yet; kept for an
    hour) or `late` (the run no longer awaits it). Forms are accepted too, with these fields or as
    Twilio's status callback. With `final`, `progress` or `note` in the URL, the body is recorded,
    whatever it is.
    """
    signals = read_callback(key, await received(request, service.options.public_url))
    await _check_scope(service, caller, signals)
    replies = await deliver(service.store, signals)
    return answer(replies[-1])


async def _check_scope(service: Service, caller: Caller, signals: Sequence[Signal]) -> None:
    if caller.sees_all:
        return
    key = signals[0].key
    of = job_of(key)
    job = None if of is None else await service.store.read(JobQuery(id=of))
    if job is None or not caller.sees(job):
        message = f"the token {caller.name!r} sees no job with the key {key[:80]!r}"
        raise UnknownJob(message, hint="a token with a scope must use the reference id:run")


HOOKS = router("hooks")

_log = logging.getLogger("headway.server")


@HOOKS.post(
    "/hooks/{provider}",
    status_code=204,
    summary="Receive a provider's webhook",
    responses={
        204: {"description": "The webhook was received, even if it arrived late or more than once."}
    },
    openapi_extra=PROVIDER_BODY,
)
async def receive_webhook(
    request: Request,
    service: TheService,
    _: Public,
    provider: Annotated[
        str, Path(description="Name of the provider in the settings.", examples=["twilio"])
    ],
) -> Response:
    """Receive a webhook and answer at once; a repeated one has no further effect.

    No token is needed: the provider's own signature is verified. 404: the provider is not
    configured. 401: the signature is missing or wrong. 503: the store is unavailable, and the
    provider should send the webhook again.
    """
    webhook = await service.hooks.take(provider, request)
    replies = await deliver(service.store, service.hooks.signals(provider, webhook))
    answers = ", ".join(one.answer for one in replies)
    _log.debug("webhook of %s: %s", provider, answers or "no signals")
    return Response(status_code=204)
