"""What Vonage's refusals concern.

Source: Vonage, "API errors": problem details, with the parameters that are invalid.
"""

from __future__ import annotations

import msgspec

from headway.systems.telephony.wire import Refusal

UNKNOWN = "404"
"""There is no such call."""


class _Parameter(msgspec.Struct):
    name: str = ""
    reason: str = ""


class _Error(msgspec.Struct):
    type: str = ""
    title: str = ""
    error_title: str = ""
    detail: str = ""
    invalid_parameters: list[_Parameter] | None = None


def read_refusal(status: int, body: bytes) -> Refusal:
    """What a reply of 4xx says.

    Args:
        status: of the reply.
        body: of the reply.

    Returns:
        Whom it concerns: by the parameters that are invalid, else by the status; a reply that is
        no error of Vonage's concerns whatever stands at that address.
    """
    try:
        said = msgspec.json.decode(body, type=_Error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        said = _Error()
    title = said.title or said.error_title
    if not title and not said.type:
        return Refusal(concerns="provider", text="there is no error of Vonage's in the reply")
    wrong = said.invalid_parameters or []
    reasons = [f"{one.name} {one.reason}".strip() for one in wrong]
    text = ": ".join(part for part in (title or said.type, said.detail, *reasons) if part)
    return Refusal(concerns=_concerns(status, wrong), code=str(status), text=text)


def _concerns(status: int, wrong: list[_Parameter]) -> str:
    if status in {401, 402, 403, 404, 407}:
        return "provider"
    places = {one.name.partition(".")[0].partition("[")[0] for one in wrong}
    if "to" in places or not places:
        return "callee"
    return "sender" if "from" in places else "provider"
