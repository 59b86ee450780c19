"""What a step asks and writes: read ahead, asked in one trip, or sent with the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headway.stores.postgres.known import Known
from headway.stores.postgres.link import Link, Sent
from headway.stores.postgres.mode import Mode, NeedsMore
from headway.stores.postgres.shared import Shared
from headway.stores.postgres.statement import Ask, Asked, Each, Read, Rows, Tell, Thing

Gathered = tuple[Callable[[list[Any]], tuple[Any, ...]], dict[Thing, Any]]
"""What makes of rows that were gathered what their statement is bound to, and the rows by name."""


class Asking(Known):
    """One connection, what was asked over it in a step, and what waits to be written.

    Args:
        shared: with the store's other sessions.
    """

    def __init__(self, shared: Shared, link: Callable[[], Link]) -> None:
        super().__init__()
        self.shared = shared
        self.mode = Mode.READ
        self._connect = link
        self._link: Link | None = None

    def forget_step(self) -> None:
        """Another step begins, of which nothing is known, asked or written."""
        super().forget_step()
        self._facts: dict[int, int] = {}
        self._changed: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._standing: set[int] = set()
        self._queue: list[Sent] = []
        self._answers: dict[Asked, Rows] = {}
        self._given: dict[Ask, tuple[tuple[Any, ...], Rows]] = {}
        self._used: dict[Asked, None] = {}
        self._wrote = False
        self._each: dict[Each, dict[Any, Rows]] = {}
        self._gathered: dict[Tell, Gathered] = {}

    # The connection

    @property
    def link(self) -> Link:
        """The connection, opened if need be."""
        link = self._link
        if link is None:
            link = self._link = self._connect()
        return link

    def drop(self) -> None:
        """Release the connection; the next step opens another."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _look_at_link(self) -> None:
        """Open another connection where the server has hung up while nothing was under way."""
        if self._link is not None and not self._link.alive():
            self.drop()
            self.shared.forget()

    # Numbers

    def number(self, key: int) -> int:
        """One of the store's own numbers; 0 where none was ever written."""
        found = self._changed.get(key)
        return self._facts.get(key, 0) if found is None else found

    def put(self, key: int, n: int) -> None:
        """Set one of the store's own numbers; only with the turn."""
        self.need_turn()
        self._changed[key] = n
        self._wrote = True

    def count(self, key: int, n: int) -> None:
        """Add to a number that many add to."""
        self._counts[key] = self._counts.get(key, 0) + n

    def stand(self, key: int) -> None:
        """A number that many add to is there from this step on, though it be 0."""
        self._counts.setdefault(key, 0)
        self._standing.add(key)

    # Asking and telling

    def ask(self, ask: Ask, *bound: Any) -> Rows:  # noqa: ANN401  (what the statement is bound to)
        """The rows that answer a question, as of now and of what this step wrote."""
        if not ask.ahead:
            given = self._given.get(ask)
            if given is not None and given[0] == bound:
                return given[1]
            return self.fetch(ask.text, bound)
        key = (ask, bound)
        self._used[key] = None
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = self.fetch(ask.text, bound)
        return found

    def know_empty(self, asked: Iterable[Asked]) -> None:
        """To these questions there is no answer, as was found out in another way."""
        self._answers.update((one, Rows()) for one in asked)

    def fetch(self, text: str, bound: tuple[Any, ...]) -> Rows:
        """Send a question, with what was written so far.

        Raises:
            NeedsMore: the step asks nothing, or no more.
        """
        if self.mode is Mode.BLIND or self.mode is Mode.PEEK:
            raise NeedsMore
        self._settle_gathered()
        batch, self._queue = self._queue, []
        batch.append((text, bound))
        return self.link.run(batch)[-1]

    def fetch_all(self, batch: Sequence[Sent]) -> list[Rows]:
        """Send several questions in one trip, with what was written so far.

        Raises:
            NeedsMore: the step asks nothing, or no more.
        """
        if self.mode is Mode.BLIND or self.mode is Mode.PEEK:
            raise NeedsMore
        self._settle_gathered()
        queued, self._queue = self._queue, []
        return self.link.run([*queued, *batch])[len(queued) :]

    def each(self, each: Each, things: Sequence[Thing]) -> dict[Any, Rows]:
        """The rows about each thing, as of now and of what this step wrote.

        Returns:
            The rows of each thing, and maybe of others; not to be changed.
        """
        read = self.read_of(each, things)
        if read is not None:
            read.take(self.fetch(read.text, read.bound))
        return self._each[each]

    def read_of(self, each: Each, things: Sequence[Thing]) -> Read | None:
        """What must be asked to know the rows about these things; None for nothing."""
        known = self._each.setdefault(each, {})
        missing = [one for one in dict.fromkeys(things) if one not in known]
        if not missing:
            return None

        def take(rows: Rows) -> None:
            known.update((one, []) for one in missing)
            for row in rows:
                known[row[each.place]].append(row)

        return Read(each.text, (each.pack(missing),), take)

    def known_of(self, each: Each) -> dict[Any, Rows]:
        """Return the answers that this step knows; a caller that changes rows updates them."""
        return self._each.setdefault(each, {})

    def read_all(self, reads: Sequence[Read]) -> None:
        """Ask all of it in one trip."""
        if reads:
            answers = self.fetch_all([(read.text, read.bound) for read in reads])
            for read, rows in zip(reads, answers, strict=True):
                read.take(rows)

    def tell(
        self,
        tell: Tell,
        *bound: Any,  # noqa: ANN401  (what it is bound to)
        patched: Sequence[Each] = (),
    ) -> None:
        """Write something; it is sent with the next question, or with the commit.

        Args:
            patched: questions whose known answers the caller keeps true itself.
        """
        self._writes(tell, patched)
        self._queue.append((tell.text, bound))

    def gather(
        self,
        tell: Tell,
        name: Thing,
        row: Any,  # noqa: ANN401  (what the statement is bound to, in columns)
        columns: Callable[[list[Any]], tuple[Any, ...]],
        patched: Sequence[Each] = (),
    ) -> None:
        """Write a row together with others that are written alike; see `tell`.

        Args:
            tell: the statement for all of them.
            name: of the row: one that was gathered under the same is replaced.
            columns: makes of rows what the statement is bound to.
            patched: as for `tell`.
        """
        known = self._gathered.get(tell)
        self._writes(tell, patched, gathering=known is not None)
        if known is None:
            known = self._gathered[tell] = (columns, {})
        known[1].pop(name, None)
        known[1][name] = row

    def _settle_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for tell, (columns, rows) in gathered.items():
            self._queue.append((tell.text, columns(list(rows.values()))))

    def do(self, tell: Tell, *bound: Any) -> Rows:  # noqa: ANN401  (what it is bound to)
        """Write something now, for what it returns."""
        self._writes(tell)
        return self.fetch(tell.text, bound)

    def _writes(self, tell: Tell, patched: Sequence[Each] = (), *, gathering: bool = False) -> None:
        limited = self.mode in {Mode.SHARED, Mode.BEAT} and tell.beside is not self.mode
        if limited or self.mode in {Mode.PEEK, Mode.READ}:
            raise NeedsMore
        self._wrote = True
        self.alone = self.alone or tell.beside is not Mode.SHARED
        changes = tell.changes
        if (
            self._gathered
            and not gathering
            and any(one.changes & changes for one in self._gathered)
        ):
            self._settle_gathered()
        for each, known in self._each.items():
            if known and each.of & changes and each not in patched:
                known.clear()
        if changes and self._answers:
            for key in [key for key in self._answers if key[0].of & changes]:
                del self._answers[key]
        if changes and self._given:
            for ask in [ask for ask in self._given if ask.of & changes]:
                del self._given[ask]

    def need_turn(self) -> None:
        """Accept a step that decides alone.

        Raises:
            NeedsMore: others may decide meanwhile.
        """
        if self.mode is not Mode.TURN:
            raise NeedsMore
