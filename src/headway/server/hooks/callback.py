"""Callbacks to a signal URL: what they say, in whichever form their sender has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.contract.signals import Signal
from headway.core.errors import InvalidValue
from headway.server.bodies.signal import VERBS, SignalBody, signal_of
from headway.server.hooks.request import HookRequest, is_object, only, read_form
from headway.server.hooks.said import digest_id
from headway.server.hooks.twilio_statuses import Form, is_status, status_signals

_TRUE, _FALSE = frozenset({"true", "1", "yes", ""}), frozenset({"false", "0", "no"})


def read_callback(key: str, came: HookRequest) -> Sequence[Signal]:
    """What a callback says.

    The fields of a signal stand in its JSON, or in its form, or in its URL: then whatever it
    carries is the record's body. A form that is a status callback of Twilio's is read as one.

    Args:
        key: of the job.
        came: the callback.

    Returns:
        One signal or more, in the order in which they are to be told.

    Raises:
        InvalidValue: it says nothing, or too much, or cannot be read.
        PayloadTooLarge: what it carries is above the limit.
    """
    asked = _fields(read_form(came.query))
    # Many senders call everything a form that they were not told the type of.
    is_form = came.is_form and not came.body.lstrip().startswith(b"{")
    if any(verb in asked for verb in VERBS):
        asked.setdefault("event", digest_id(came.query.encode() + b"\n" + came.body))
        return [signal_of(key, {**asked, "body": _carried(came, is_form=is_form)})]
    if not is_form:
        said = came.json()
        if not is_object(said):
            message = "a signal is an object"
            raise InvalidValue(message, hint='as {"event": "evt-7", "final": "succeeded"}')
        return [signal_of(key, said)]
    form = read_form(came.body)
    if is_status(form):
        signals = status_signals(form, key)
        if not signals:
            message = "the status callback names no call or message"
            raise InvalidValue(message)
        return signals
    told = _fields(form)
    told.setdefault("event", digest_id(came.body))
    return [signal_of(key, told)]


def _carried(came: HookRequest, *, is_form: bool) -> object:
    if not came.body:
        return None
    return dict(read_form(came.body)) if is_form else came.json()


def _fields(form: Form) -> dict[str, object]:
    """The fields of a signal that text gives; what is no field of one is passed over."""
    found: dict[str, object] = {}
    for name in SignalBody.model_fields:
        text = only(form, name)
        if text is not None:
            found[name] = _typed(name, text)
    return found


def _typed(name: str, text: str) -> object:
    if name == "progress":
        known: Mapping[str, bool] = dict.fromkeys(_TRUE, True) | dict.fromkeys(_FALSE, False)
        return known.get(text.lower(), text)
    if name in {"extend", "after"} and text.isdecimal() and len(text) < 16:
        return int(text)
    return text
