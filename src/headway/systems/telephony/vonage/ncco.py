"""Scripts in Vonage's call control objects, by the official models."""

from __future__ import annotations

from vonage_voice.models import Dtmf, Input, Talk  # pyright: ignore[reportMissingTypeStubs]  (it has types, but does not say so)
from vonage_voice.models.ncco import NccoAction  # pyright: ignore[reportMissingTypeStubs]  (as above)

from headway.systems.telephony.voice import Ask, Say

LONGEST_WAIT_S = 10
"""The longest that Vonage waits for keys."""


def actions(script: Say | Ask) -> list[NccoAction]:
    """A script in actions.

    The words of a question are said twice, and keys can be pressed all the while. Silence is told
    once, after them.

    Raises:
        ValueError: the text is too long, or too many keys are asked for.
    """
    if isinstance(script, Say):
        return [Talk.model_validate({"text": script.text})]
    asked = {"text": script.text, "bargeIn": True, "loop": 2}
    keys = Dtmf(timeOut=min(script.wait_s, LONGEST_WAIT_S), maxDigits=script.digits)
    told = Input(type=["dtmf"], dtmf=keys, eventUrl=[script.answer_url], eventMethod="POST")
    return [Talk.model_validate(asked), told]
