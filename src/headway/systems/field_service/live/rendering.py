"""The live page as HTML: everything that a request carries is escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from headway.systems.field_service.live.board import Board

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
    made.filters["said"] = _said
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


def _said(word: str) -> str:
    return _WORDS.get(word, word)


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%H:%M:%S")
