"""The live page as HTML: everything that a request carries is escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from headway.systems.field_service.live.board import Board
from headway.systems.field_service.request import Position
from headway.systems.field_service.told import AskedView
from headway.systems.telephony.voice import CallStatus

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing runs on the page but its own script."""

_PACKAGE = "headway.systems.field_service.live"
_WORDS = {
    "accepted": "accepted",
    "declined": "declined",
    "timeout": "no answer in time",
    "unfit": "passed over",
    "passed_over": "passed over",
}
_UNREACHED = {CallStatus.BUSY, CallStatus.NO_ANSWER, CallStatus.FAILED}
"""How a call ended in which nobody was asked anything: it counts as declined."""


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(_PACKAGE, "page"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["clock"] = _clock
    made.filters["answer"] = _answer
    made.filters["place"] = _place
    return made


def page(board: Board | None) -> str:
    """The whole page.

    Args:
        board: what it shows; None for whoever has not said who he is.
    """
    return _environment().get_template("live.html").render(board=board)


def fragment(board: Board) -> str:
    """What the script puts in the place of the board it shows."""
    return _environment().get_template("board.html").render(board=board)


@cache
def static(name: str) -> bytes:
    """The page's own script or style."""
    return files(_PACKAGE).joinpath("page", name).read_bytes()


def _answer(asked: AskedView) -> str:
    """What somebody said; a reason that says the same is not said twice."""
    if asked.said == "declined" and asked.reason in _UNREACHED:
        return f"not reached ({asked.reason})"
    said = _WORDS.get(asked.said, asked.said)
    return said if asked.reason in {"", said} else f"{said} ({asked.reason})"


def _place(position: Position) -> str:
    """A position to a metre or so; forms may carry as many digits as they like."""
    return f"{position.lat:.5f}, {position.lon:.5f}"


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%H:%M:%S")
