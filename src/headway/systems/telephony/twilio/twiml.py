"""Scripts in TwiML, by the official builder."""

from __future__ import annotations

from typing import Any

from twilio.twiml.messaging_response import MessagingResponse  # pyright: ignore[reportMissingTypeStubs]  (it has none)
from twilio.twiml.voice_response import Gather, VoiceResponse  # pyright: ignore[reportMissingTypeStubs]  (it has none)

from headway.systems.telephony.voice import Ask, Say

XML = "application/xml"


def written(script: Say | Ask) -> str:
    """A script in TwiML.

    Of a question the words are said twice, each time followed by the wait. Only the second silence
    is told: the first one goes on in the document.
    """
    spoken: Any = VoiceResponse()
    if isinstance(script, Say):
        spoken.say(script.text)
    else:
        spoken.append(_gather(script, tells_silence=False))
        spoken.append(_gather(script, tells_silence=True))
    return str(spoken)


def answered(text: str | None) -> str:
    """The answer to a message that somebody sent; None for none."""
    answer: Any = MessagingResponse()
    if text is not None:
        answer.message(text)
    return str(answer)


def _gather(script: Ask, *, tells_silence: bool) -> object:
    gather: Any = Gather(
        input="dtmf",
        action=script.answer_url,
        method="POST",
        num_digits=script.digits,
        timeout=script.wait_s,
        action_on_empty_result=tells_silence,
    )
    gather.say(script.text)
    return gather
