"""An imaginary older system in its own process: it keeps taking in leads and calling them.

It is a typical loop: take a row that is ours and pending, mark it, call, mark it done. Its calls
are rows of a table. Run it as `python -m tests.systems.calls.source_table.older_system`, with a
URL, the number of leads to take in, and the number of seconds within which they are due; it exits
on SIGTERM, after the calls that it has started.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

import psycopg

BATCH = 3
"""Rows that it takes at a time."""


class OlderSystem:
    """The loop.

    Args:
        connection: connection to the database of the leads.
        leads: number of leads that it takes in while it runs.
        within_s: seconds within which the leads are due.
    """

    def __init__(self, connection: psycopg.Connection, leads: int, within_s: int) -> None:
        self._connection = connection
        self._left = leads
        self._within_s = within_s
        self.stopping = False

    def run(self) -> None:
        while not self.stopping:
            self._take_in()
            took = self._call()
            self._connection.execute("SELECT pg_sleep(%s)", (0.005 if took else 0.02,))

    def _take_in(self) -> None:
        if self._left <= 0:
            return
        self._left -= 1
        self._connection.execute(
            "INSERT INTO their_leads (msisdn, zone, partner, call_after, state, handled_by)"
            " SELECT '+1555' || lpad(nextval('phones')::text, 7, '0'), 'America/Denver',"
            " 'partner ' || (random() * 5)::int, now() + random() * %s * interval '1 s',"
            " 'new', 'legacy'",
            (self._within_s,),
        )

    def _call(self) -> bool:
        with self._connection.transaction():
            rows = self._connection.execute(
                "SELECT lead_no, msisdn FROM their_leads"
                " WHERE handled_by = 'legacy' AND state = 'new' AND call_after <= now()"
                " ORDER BY lead_no LIMIT %s FOR UPDATE SKIP LOCKED",
                (BATCH,),
            ).fetchall()
            for lead, _ in rows:
                self._connection.execute(
                    "UPDATE their_leads SET state = 'calling', called_at = now()"
                    " WHERE lead_no = %s",
                    (lead,),
                )
        for lead, phone in rows:
            # This is the call: each row of this table stands for a call that was made.
            self._connection.execute(
                "INSERT INTO their_ledger (lead_no, msisdn, at) VALUES (%s, %s, now())",
                (lead, phone),
            )
            self._connection.execute(
                "UPDATE their_leads SET state = 'closed', ended_at = now() WHERE lead_no = %s",
                (lead,),
            )
        return bool(rows)


def main(url: str, leads: int, within_s: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        system = OlderSystem(connection, leads, within_s)

        def stop(number: int, frame: FrameType | None) -> None:
            del number, frame
            system.stopping = True

        signal.signal(signal.SIGTERM, stop)
        sys.stdout.write("calls\n")
        sys.stdout.flush()
        system.run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
