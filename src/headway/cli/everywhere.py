"""The options that every command takes, and that may as well stand before its name."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

STORE = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The store, as sqlite:///headway.db; else HEADWAY_STORE, else headway.toml.",
        show_default=False,
    ),
]
JSON = Annotated[
    bool,
    typer.Option("--json", help="Answer with one JSON document; errors are JSON on stderr."),
]


class Told(NamedTuple):
    """What was told so far.

    Attributes:
        store: the URL of `--store`.
        json: whether `--json` was there.
    """

    store: str | None = None
    json: bool = False

    def also(self, *, store: str | None, json: bool) -> Told:
        """What was told before and what is told now; the later store wins."""
        return Told(store=store or self.store, json=json or self.json)
