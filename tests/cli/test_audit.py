from __future__ import annotations

import apsw

from headway.core.gates.spec import GateUse
from tests.cli.conftest import Headway
from tests.cli.gates import declare_line
from tests.cli.seeding import claim, enqueue, new_job

LINE = GateUse(name="line", template="line", shared=True)


def hold_a_permit() -> None:
    declare_line()
    enqueue(new_job(gates=(LINE,)))
    claim("main")


def test_clean_audit_says_what_it_checked(headway: Headway):
    hold_a_permit()
    ran = headway("audit")
    assert (ran.code, ran.out) == (0, "no difference in 1 gate, 1 permit, 1 held job\n")
    document = headway("audit", "--json").document
    assert document["differences"] == []
    assert (document["permits"], document["held"]) == (1, 1)


def test_lost_permit_is_named_with_exit_code_1(headway: Headway):
    hold_a_permit()
    db = apsw.Connection("headway.db")
    db.execute("DELETE FROM permit")
    db.close()
    ran = headway("audit", "--json")
    assert ran.code == 1
    assert any("line" in one["where"] + one["what"] for one in ran.document["differences"])
    ran = headway("audit")
    assert ran.code == 1
    assert "line" in ran.out
    assert headway("doctor", "--json").code == 1
