"""What the parts of the job table share."""

from __future__ import annotations

from collections.abc import Sequence

from headway.stores.ledger.columns.jobs import read_job
from headway.stores.ledger.rows import JobRow
from headway.stores.postgres.mode import Mode
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Rows


class JobsBase:
    """The session, and rows as jobs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _rows(self, found: Rows) -> list[JobRow]:
        session = self._session
        session.flows.read(row[3] for row in found)
        session.words.read(one for row in found for one in row[12:14] if one is not None)
        flow_of, word_of = session.flows.thing, session.words.thing
        return [read_job(row, flow_of, word_of) for row in found]

    def _moved(self) -> None:
        """Heads that were read stand no more."""
        session = self._session
        session.heads.clear()
        session.bounded.clear()
        session.lanes_asked = dict.fromkeys(session.lanes_asked)

    def _leave(self, seqs: Sequence[int]) -> None:
        """Heads that were read wait no more: what nothing waits before now is noted."""
        session = self._session
        gone = session.gone
        gone.update(seqs)
        session.parked.leave(seqs)
        for flow, (_, rows) in session.heads.items():
            left = [row for row in rows if row[2] in gone]
            if not left:
                continue
            floors: dict[int, tuple[int, int]] = {}
            for row in rows:
                # The last that is looked at: the first that stays, or the last of all.
                floors[row[0]] = (row[1], row[2])
                if row[2] not in gone:
                    break
            session.risen[flow] = (floors, session.risen.get(flow, ({}, 0))[1] + len(left))
        self._moved()

    def _wait_behind(self, flow: int, priority: int, due_at: int, seq: int) -> None:
        """A job waits again, or anew, maybe before others."""
        session = self._session
        if session.mode in {Mode.TURN, Mode.PEEK}:
            session.behind = True
        session.shared.marks.lower(flow, priority, due_at, seq)
