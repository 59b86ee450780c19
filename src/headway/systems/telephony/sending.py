"""Text messages: their words rendered from a template, and sent once by a job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import cast

from headway.contract.signals import Decided, Signal
from headway.contract.store import Store
from headway.core.errors import InvalidValue, ProviderRefused, ProviderUnsure
from headway.runtime.answers import Dead, Retry
from headway.runtime.encoding import encode
from headway.runtime.job import Job
from headway.systems.telephony.texts import TextOrder, Texts

SPARE_MS = 5_000
"""Beyond the time that the provider may take; then the message counts as possibly sent."""

_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def check_words(what: str, words: str) -> None:
    """Check that each brace belongs to a placeholder: any other would be read out.

    Args:
        what: the field, for the message.
        words: with placeholders such as `{name}`.

    Raises:
        InvalidValue: one does not.
    """
    rest = _FIELD.sub("", words)
    if "{" in rest or "}" in rest:
        message = f"{what}: a brace in it belongs to no placeholder"
        raise InvalidValue(message, hint="a placeholder is {name}: letters, digits and _")


def render(words: str, payload: object) -> str:
    """Return words with each `{name}` replaced by the payload's text or number, or by nothing."""
    known = cast("Mapping[str, object]", payload if isinstance(payload, dict) else {})

    def value_of(match: re.Match[str]) -> str:
        value = known.get(match[1])
        return str(value) if isinstance(value, str | int | float) else ""

    return _FIELD.sub(value_of, words)


async def send_text(store: Store, job: Job, texts: Texts, order: TextOrder) -> None:
    """Send a message and settle its job; one that may have been sent is not sent again.

    Args:
        store: where the job is.
        job: is handed over before the provider is asked.
        texts: the provider.
        order: its `ref` is the job's.

    Raises:
        Dead: the provider does not send it.
        Retry: the provider takes no messages now.
    """
    await job.hand_over(timeout=timedelta(milliseconds=texts.answers_ms + SPARE_MS))
    try:
        message_id = await texts.send(order)
    except ProviderRefused as refused:
        reason = f"refused: {refused.message}"
        if refused.concerns == "provider":
            raise Retry(reason, after="5s") from refused
        raise Dead(reason) from refused
    except ProviderUnsure:
        return
    await store.signal(
        Signal(
            key=job.ref,
            event=f"sent:{job.ref}",
            decided=Decided.SUCCEEDED,
            reason="sent",
            body=encode("body", {"message_id": message_id}),
        )
    )
