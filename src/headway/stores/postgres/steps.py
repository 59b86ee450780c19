"""Steps: run a verb in a transaction, and retry it on a conflict with another step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import psycopg
from psycopg.errors import (
    DivisionByZero,
    LockNotAvailable,
    SerializationFailure,
    UniqueViolation,
)

from headway.core.errors import StoreUnavailable
from headway.stores.ledger.ledger import ReadAhead
from headway.stores.ledger.rows import ClosedPeriod
from headway.stores.postgres.failures import explain, is_broken, is_transient
from headway.stores.postgres.ledger import PostgresLedger, reads_of
from headway.stores.postgres.link import BoundStatement, Link, open_link
from headway.stores.postgres.prefetch import begin_with_prefetch
from headway.stores.postgres.session import Session
from headway.stores.postgres.shared import Done, MakeNotice, Shared, no_notice
from headway.stores.postgres.statement import (
    BoundSelect,
    KeyHeld,
    Mode,
    NeedsMore,
    Read,
    Repeat,
    StepKind,
)
from headway.stores.sql.statement import Rows
from headway.stores.sql.store import mark_if_changed

Answer = TypeVar("Answer")
LedgerVerb = Callable[[PostgresLedger], Answer]

_ADDING = frozenset({Mode.BLIND, Mode.INSERT})
TRIES = 8
"""Maximum number of attempts of a step."""


class Part(NamedTuple, Generic[Answer]):
    """A verb, and what the trip that starts its step reads for it; it may share the step.

    Attributes:
        verb: called with the tables within the step.
        kind: if given, its reads are remembered for the next step of the kind.
        first: queries that it certainly needs.
        take: called with the rows of `first`, before the verb.
        ahead: further reads for the trip that starts the step.
    """

    verb: LedgerVerb[Answer]
    kind: StepKind | None = None
    first: Sequence[BoundSelect] = ()
    take: Callable[[Sequence[Rows]], None] | None = None
    ahead: ReadAhead | None = None


class Steps:
    """Runs verbs on one connection, one after another.

    Args:
        shared: state shared with the store's other connections.
        closed_periods: shared by the process; see `Ledger.closed_periods`.
        make_notice: builds the statement that notifies other processes of a commit.
        opener: opens the connection (default: one of the store's own).
    """

    def __init__(
        self,
        shared: Shared,
        closed_periods: dict[int, ClosedPeriod],
        make_notice: MakeNotice = no_notice,
        *,
        opener: Callable[[], Link] | None = None,
    ) -> None:
        self.shared = shared
        self.make_notice = make_notice
        self.session = Session(shared, opener or self._open, make_notice)
        self.ledger = PostgresLedger(self.session, closed_periods)

    def _open(self) -> Link:
        return open_link(self.shared.options)

    def run(self, mode: Mode, verb: LedgerVerb[Answer]) -> tuple[Answer, Done]:
        """Run a verb as one step; see `run_part`."""
        return self.run_part(mode, Part(verb))

    def run_part(self, mode: Mode, part: Part[Answer]) -> tuple[Answer, Done]:
        """Run a verb as one step, with what it reads first.

        Returns:
            The verb's answer, and what the step has done.

        Raises:
            NeedsMore: the verb cannot run in this mode; nothing was written.
            KeyHeld: the step only adds, and would have to wait for another open transaction.
            StoreError: the server failed; nothing was written unless the error says otherwise.
            StoreUnavailable: every attempt conflicted with another step; nothing was written.
            Exception: raised by the verb; nothing was written.
        """
        for _ in range(TRIES):
            try:
                return self._once(mode, part)
            except Repeat:
                continue
        message = f"the step conflicted with other steps {TRIES} times"
        raise StoreUnavailable(message, hint="try again; nothing was written")

    def run_parts(self, parts: Sequence[Part[Any]]) -> tuple[list[Any], Done]:
        """Run verbs, one after another, as one exclusive step: all of them or none.

        Returns:
            The answer of each, and what the step has done.

        Raises:
            Exception: see `run_part`.
        """

        def verb(ledger: PostgresLedger) -> list[Any]:
            return [part.verb(ledger) for part in parts]

        def take(answers: Sequence[Rows]) -> None:
            left = iter(answers)
            for part in parts:
                own = [next(left) for _ in part.first]
                if part.take is not None:
                    part.take(own)

        kinds = [part.kind for part in parts if part.kind is not None]
        kind = None
        if kinds:
            names = tuple(one.name for one in kinds)
            n = sum(one.n for one in kinds)
            kind = kinds[0] if len(names) == 1 else StepKind(names, n, names[::-1])
        aheads = [part.ahead for part in parts if part.ahead is not None]
        first = [asked for part in parts for asked in part.first]
        whole = Part(verb, kind, first, take, _together(aheads))
        return self.run_part(Mode.EXCLUSIVE, whole)

    def read_or_abort(self, part: Part[Answer]) -> tuple[Answer, Done]:
        """Run a verb without the lock; its reads are remembered even if it needs more.

        Raises:
            NeedsMore: the verb has to write; nothing was written.
        """
        try:
            return self.run_part(Mode.READ_OR_ABORT, part)
        except NeedsMore:
            self.session.learn()
            raise

    def _once(self, mode: Mode, part: Part[Answer]) -> tuple[Answer, Done]:
        session = self.session
        committing = False
        try:
            answers = begin_with_prefetch(
                session, mode, part.kind, part.first, self._reads(part.ahead)
            )
            if mode is Mode.EXCLUSIVE:
                mark_if_changed(self.ledger)
            if part.take is not None:
                part.take(answers)
            answer = part.verb(self.ledger)
            committing = True
            done = session.commit()
        except psycopg.Error as error:
            self._give_up(error)
            if mode is Mode.CALLER and isinstance(error, SerializationFailure):
                # In the snapshot of the caller's transaction a repeat would fail again.
                message = "the caller's transaction conflicted with another one"
                hint = "roll it back and repeat it from its beginning; nothing was sent"
                raise StoreUnavailable(message, hint=hint) from error
            overtaken = isinstance(error, UniqueViolation | DivisionByZero)
            if overtaken or is_transient(error):
                if mode is Mode.BLIND:
                    raise NeedsMore from error
                raise Repeat from error
            if is_broken(error) and not committing and mode is not Mode.CALLER:
                # Nothing was committed; a new connection may work, or report what is wrong.
                raise Repeat from error
            if (
                isinstance(error, LockNotAvailable)
                and not session.waits_for_keys
                and mode in _ADDING
            ):
                raise KeyHeld from error
            raise explain(error, self.shared.options, committing=committing) from error
        except BaseException as error:
            self._give_up(error)
            raise
        return answer, done

    def run_in_one_trip(self, batch: Sequence[BoundStatement]) -> list[Rows]:
        """Run statements as one step in a single trip, including the commit.

        Returns:
            The rows of each.

        Raises:
            NeedsMore: an assumption does not hold, or another step conflicted; nothing was written.
            OutcomeUnknown: the connection broke.
            StoreError: the server failed; nothing was written.
        """
        try:
            return self.session.run_in_one_trip(batch)
        except psycopg.Error as error:
            self._give_up(error)
            if isinstance(error, UniqueViolation | DivisionByZero) or is_transient(error):
                raise NeedsMore from error
            meaning = explain(error, self.shared.options, committing=True)
            raise meaning from error
        except BaseException as error:
            self._give_up(error)
            raise

    def _reads(self, ahead: ReadAhead | None) -> Callable[[], Sequence[Read]]:
        return list if ahead is None else lambda: reads_of(self.session, ahead)

    def _give_up(self, error: BaseException) -> None:
        session = self.session
        if is_broken(error):
            session.drop()
            self.shared.forget()
            return
        try:
            session.rollback()
        except psycopg.Error:
            session.drop()
            self.shared.forget()

    def close(self) -> None:
        """Release the connection."""
        self.session.drop()


def _together(aheads: Sequence[ReadAhead]) -> ReadAhead:
    fields: list[Sequence[Any]] = [[*chain(*named)] for named in zip(*aheads, strict=True)]
    return ReadAhead(*fields)
