"""TwiML: the format in which an application returns what is spoken and asked in a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from headway.core.errors import InvalidValue
from headway.systems.telephony.voice import Ask, Say

_MOST = 65_536
_TALKS = frozenset(
    {"Play", "Dial", "Connect", "Record", "Enqueue", "Conference", "Start", "Stream"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Spoken:
    """Words are said."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Silence:
    """Nothing is said for so long."""

    pause_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Talk:
    """What lasts as long as the person talks."""

    verb: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Gather:
    """Keys are waited for.

    Attributes:
        action: receives the keys; None for the URL of this document.
        digits: how many keys end the waiting.
        timeout_ms: how long is waited after the words.
        reports_none: whether a timeout without keys is reported as well.
    """

    prompts: tuple[str, ...] = ()
    action: str | None = None
    method: str = "POST"
    digits: int = 1_000
    timeout_ms: int = 5_000
    reports_none: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Redirect:
    """Other words are fetched."""

    url: str
    method: str = "POST"


@dataclass(frozen=True, kw_only=True, slots=True)
class HangUp:
    """The call ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A message is written in answer."""

    text: str


Step = Spoken | Silence | Talk | Gather | Redirect | HangUp | Message


def read_twiml(text: str) -> list[Step]:
    """Parse an application's document; an empty one has no steps.

    Raises:
        InvalidValue: it is no TwiML.
    """
    if not text.strip():
        return []
    if len(text) > _MOST or "<!DOCTYPE" in text or "<!ENTITY" in text:
        message = "12100 the document is too long, or has entities of its own"
        raise InvalidValue(message)
    try:
        root = ET.fromstring(text)  # noqa: S314  (documents that bring entities are refused above)
    except (ET.ParseError, ValueError) as error:
        message = f"12100 the document is no XML: {error}"
        raise InvalidValue(message) from None
    if root.tag != "Response":
        message = f"12100 the document is a <{root.tag:.40}>, and no <Response>"
        raise InvalidValue(message)
    try:
        return [_step(one) for one in root]
    except (ValueError, OverflowError) as error:
        message = f"12200 the document has an unusable value: {error}"
        raise InvalidValue(message) from None


def write_twiml(script: Say | Ask) -> str:
    """The document that says these words, or asks, twice if need be."""
    root = ET.Element("Response")
    if isinstance(script, Say):
        ET.SubElement(root, "Say").text = script.text
        return ET.tostring(root, encoding="unicode")
    for last in (False, True):
        gather = ET.SubElement(
            root,
            "Gather",
            input="dtmf",
            action=script.answer_url,
            numDigits=str(script.digits),
            timeout=str(script.wait_s),
            actionOnEmptyResult="true" if last else "false",
        )
        ET.SubElement(gather, "Say").text = script.text
    return ET.tostring(root, encoding="unicode")


def write_reply(text: str | None) -> str:
    """The document that answers a message: with these words, or with nothing."""
    root = ET.Element("Response")
    if text is not None:
        ET.SubElement(root, "Message").text = text
    return ET.tostring(root, encoding="unicode")


def _step(one: ET.Element) -> Step:
    words = "".join(one.itertext()).strip()
    made = _PLAIN.get(one.tag)
    if made is not None:
        return made(one, words)
    if one.tag in _TALKS:
        return Talk(verb=one.tag)
    message = f"the verb <{one.tag:.40}> is unknown"
    raise ValueError(message)


def _gather(one: ET.Element) -> Gather:
    prompts = ("".join(each.itertext()).strip() for each in one if each.tag == "Say")
    return Gather(
        prompts=tuple(prompts),
        action=one.get("action"),
        method=one.get("method", "POST").upper(),
        digits=int(one.get("numDigits", "1000")),
        timeout_ms=1_000 * int(one.get("timeout", "5")),
        reports_none=one.get("actionOnEmptyResult", "false").lower() == "true",
    )


_PLAIN: Mapping[str, Callable[[ET.Element, str], Step]] = {
    "Say": lambda _, words: Spoken(text=words),
    "Message": lambda _, words: Message(text=words),
    "Pause": lambda one, _: Silence(pause_ms=1_000 * int(one.get("length", "1"))),
    "Gather": lambda one, _: _gather(one),
    "Redirect": lambda one, words: Redirect(url=words, method=one.get("method", "POST").upper()),
    "Hangup": lambda _, __: HangUp(),
    "Reject": lambda _, __: HangUp(),
    "Leave": lambda _, __: HangUp(),
}
