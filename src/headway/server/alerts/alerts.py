"""The alerts of one server: the rule books of its systems, and whether it is the one that tells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.core.errors import InvalidValue
from headway.server.alerts.remembered import Place
from headway.server.alerts.rule_book import Book


class Alerts:
    """What systems add to the alerts of one server.

    Attributes:
        leads: whether this server is the one of its store that alerts.
        off: names of rules of which nothing is told.
        place: where what was told outlives this server; None for nowhere.
    """

    def __init__(self) -> None:
        """Has no rules but the engine's."""
        self.leads = False
        self.off: frozenset[str] = frozenset()
        self.place: Place | None = None
        self._books: list[Book] = []

    @property
    def books(self) -> Sequence[Book]:
        """Of the systems, in the order in which they were added."""
        return tuple(self._books)

    def add(self, book: Book) -> None:
        """Adds rules of a system; its `start` is the moment to do it.

        Raises:
            InvalidValue: a rule of that name is there already.
        """
        check_names((*self._books, book))
        self._books.append(book)


def check_names(books: Iterable[Book], off: Iterable[str] = ()) -> None:
    """Lets rules pass that have names of their own, and only rules that there are be off.

    Raises:
        InvalidValue: two rules have one name, or one that is off is none.
    """
    names = [name for book in books for name in book.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = f"there are two rules {twice[0]!r:.80}"
        raise InvalidValue(message, hint="give each a name of its own")
    for name in sorted(set(off).difference(names)):
        message = f"alerts.off: there is no rule {name!r:.80}"
        raise InvalidValue(message, hint=f"there are {', '.join(names)}")
