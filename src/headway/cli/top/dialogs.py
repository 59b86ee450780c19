"""Modal screens of `headway top`: the confirmation of an action, and a page of text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from headway.cli.terminal import shown
from headway.core.errors import HeadwayError
from headway.core.hidden import hidden_text


class ConfirmDialog(ModalScreen[str | None]):
    """Asks to confirm an action; the result is the reason, or None if it was declined."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "No")]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Create the question and the input for the reason."""
        yield Static(shown(f"{self._question} (enter: yes, escape: no)", "bold"))
        yield Input(placeholder="reason, for the trail", max_length=1_000)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return the reason."""
        self.dismiss(event.value)

    def action_leave(self) -> None:
        """Decline."""
        self.dismiss(None)


class PageDialog(ModalScreen[None]):
    """A full-screen text that is reloaded at each refresh."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "Back"),
        Binding("w", "app.why", "Why"),
        Binding("c", "app.act('cancel')", "Cancel"),
        Binding("r", "app.act('retry')", "Retry"),
    ]

    def __init__(self, read: Callable[[], Awaitable[Text]], *, job: str | None = None) -> None:
        super().__init__()
        self._read = read
        self.job = job

    def compose(self) -> ComposeResult:
        """Create the text and the line of keys."""
        with VerticalScroll():
            yield Static(id="page")
        yield Static(classes="said")
        keys = "escape back" if self.job is None else "escape back  w why  c cancel  r retry"
        yield Static(Text(keys, style="dim"), classes="keys")

    async def on_mount(self) -> None:
        """Load the text, and focus it so that the arrow keys scroll it."""
        self.query_one(VerticalScroll).focus()
        await self.reload()

    async def reload(self) -> None:
        """Load the text, or show the error."""
        try:
            text = await self._read()
        except HeadwayError as error:
            text = shown(hidden_text(str(error)), "red")
        self.query_one("#page", Static).update(text)
