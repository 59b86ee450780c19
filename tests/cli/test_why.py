from __future__ import annotations

import re

from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from tests.cli.conftest import Headway
from tests.cli.gates import declare, declare_line
from tests.cli.seeding import claim, enqueue, new_job

LINE = GateUse(name="line", template="line", shared=True)


def test_why_names_the_full_gate_and_its_holders(headway: Headway):
    declare_line()
    holder, waiter = enqueue(new_job(gates=(LINE,)), new_job(gates=(LINE,)))
    claim("main")
    ran = headway("why", waiter)
    assert ran.code == 0
    assert ran.out.splitlines()[0].startswith("blocked: ")
    assert "line" in ran.out
    assert f"{holder}:1" in ran.out
    assert "place in its flow  1\n" in ran.out
    document = headway("why", waiter, "--json").document
    assert document["shown"] == "blocked"
    assert [gate["name"] for gate in document["closed"]] == ["line"]
    assert document["closed"][0]["holders"][0]["job"] == holder


def test_first_holders_are_named_and_the_others_counted(headway: Headway):
    declare(Slots("line", 5))
    *_, waiter = enqueue(*(new_job(gates=(LINE,), priority=n) for n in range(6)))
    claim("main", n=5)
    assert "and 2 more" in headway("why", waiter).out


def test_why_names_what_never_fits(headway: Headway):
    declare_line()
    greedy = GateUse(name="line", template="line", shared=True, amount=5)
    (made,) = enqueue(new_job(gates=(greedy,)))
    assert headway("why", made, "--json").document["never_fits"] == ["line"]
    assert "never fits" in headway("why", made).out


def test_why_names_who_paused_and_until_when(headway: Headway):
    (made,) = enqueue(new_job())
    headway("pause", "lane:main", "--until", "20m", "--reason", "lunch [b]", "--author", "ann")
    ran = headway("why", made)
    for part in ("lane:main", r"lunch \[b\]", "ann", r"\(in 1\dm( \d+s)?\)"):
        assert re.search(part, ran.out)
