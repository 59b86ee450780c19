from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.store import Store
from headway.core.gates.opening import Hours
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.stores.sqlite.timing import system_clock
from tests.cli.conftest import Headway
from tests.cli.gates import declare, declare_all, declare_line
from tests.cli.seeding import claim, enqueue, new_job, with_store

LINE = GateUse(name="line", template="line", shared=True)


def test_gates_are_listed_by_name(headway: Headway):
    declare_all()
    gates = headway("gates", "--json").document["gates"]
    assert [(gate["name"], gate["kind"]) for gate in gates] == [
        ("line", "slots"),
        ("numbers", "pool"),
        ("sms", "rate"),
    ]
    ran = headway("gates")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["GATE", "line", "numbers", "sms"]
    assert "7 per 1h" in ran.out


def test_gate_is_shown_with_its_members_and_holders(headway: Headway):
    declare_all()
    pool = GateUse(name="numbers", template="numbers", shared=True)
    (made,) = enqueue(new_job(gates=(pool,)))
    claim("main")
    ran = headway("gates", "show", "numbers")
    for part in ("numbers/+1555", made, "+1555"):
        assert part in ran.out
    document = headway("gates", "show", "numbers", "--json").document
    assert document["holders"][0]["member"] == "+1555"


def test_only_the_holders_that_are_not_listed_are_counted(headway: Headway):
    declare(Slots("wide", 20))
    use = GateUse(name="wide", template="wide", shared=True)
    made = enqueue(*(new_job(gates=(use,)) for _ in range(13)))
    claim("main", n=13)
    lines = headway("gates", "show", "wide").out.splitlines()
    assert sum(line.startswith(tuple(made)) for line in lines) == 10
    assert "and 3 more" in lines


def test_only_gates_with_parked_jobs_can_be_listed(headway: Headway):
    declare_all()
    assert headway("gates", "--parked", "--json").document["gates"] == []
    assert "no job is parked" in headway("gates", "--parked").err
    use = GateUse(name="phone:1", template="phone:{phone}", shared=False)

    async def define(store: Store) -> int:
        item = DeclareGate(spec=Slots("phone:{phone}", 1))
        return await store.define(DefineRequest(items=(item,), author="code"))

    with_store(define)
    enqueue(new_job(gates=(use,)), new_job(gates=(use,)))
    claim("main", n=2)
    gates = headway("gates", "--parked", "--json").document["gates"]
    assert [(gate["name"], gate["parked"]) for gate in gates] == [("phone:1", 1)]


def test_hours_are_unused_until_a_job_needs_them_and_closed_outside(headway: Headway):
    in_three_days = datetime.fromtimestamp(system_clock() / 1000, UTC) + timedelta(days=3)
    declare(Hours("office", "00:00-00:01", days=f"{in_three_days:%a}".lower(), tz="UTC"))

    def state() -> str:
        return headway("gates").out.splitlines()[1].split()[2]

    assert state() == "unused"
    use = GateUse(name="office", template="office", shared=True, zone="UTC")
    enqueue(new_job(gates=(use,)))
    claim("main")
    assert state() == "closed"


def test_wrong_zone_is_refused_before_a_gate_is_closed(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    declare_line()
    monkeypatch.setenv("HEADWAY_ZONE", "Nowhere")
    ran = headway("pause", "line", "--until", "20m")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("headway: HEADWAY_ZONE: there is no time zone 'Nowhere'")
    monkeypatch.delenv("HEADWAY_ZONE")
    assert headway("gates", "show", "line", "--json").document["open"]


def test_operator_value_applies_until_reset(headway: Headway):
    declare_all()
    headway("gates", "set", "line", "--capacity", "3", "--reason", "more phones")
    shown = headway("gates", "show", "line", "--json").document
    assert (shown["capacity"], shown["overridden"]) == (3, True)
    headway("gates", "reset", "line")
    shown = headway("gates", "show", "line", "--json").document
    assert (shown["capacity"], shown["overridden"]) == (1, False)


def test_rates_and_pools_are_set_by_their_own_options(headway: Headway):
    declare_all()
    headway("gates", "set", "sms", "--limit", "2", "--per", "1m")
    headway("gates", "set", "numbers", "--member", "+1777=4", "--member", "a=b=1")
    sms = headway("gates", "show", "sms", "--json").document
    assert (sms["capacity"], sms["per_ms"]) == (2, 60_000)
    numbers = headway("gates", "show", "numbers", "--json").document
    assert [(m["name"], m["capacity"]) for m in numbers["members"]] == [
        ("numbers/+1777", 4),
        ("numbers/a=b", 1),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["set", "line"], "nothing to change"),
        (["set", "line", "--capacity", "-1"], "-1"),
        (["set", "line", "--per", "soon"], "the duration 'soon'"),
        (["set", "line", "--member", "x"], "not NAME=N"),
        (["set", "nope", "--capacity", "1"], "nope"),
        (["set", "lane:main", "--limit", "4"], "has a capacity, but no limit of starts"),
        (["show", "nope"], "there is no gate 'nope'"),
        (["close", "nope"], "nope"),
        (["close", "line", "--until", "yesterday"], "--until"),
        (
            ["close", "line", "--until", "2020-01-01T00:00Z"],
            "2020-01-01T00:00:00Z, which is not in the future: it is now",
        ),
        (["close", "line", "--until", "0s"], "Z, which is not in the future: it is now"),
    ],
)
def test_unusable_change_is_refused_and_nothing_is_written(
    headway: Headway, line: list[str], said: str
):
    declare_line()
    before = headway("gates", "--json").out
    ran = headway("gates", *line)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert headway("gates", "--json").out == before


def test_closed_gate_lets_nothing_pass_until_opened(headway: Headway):
    declare_line()
    enqueue(new_job(gates=(LINE,)))
    closed = headway("gates", "close", "line", "--json").document
    assert closed["closed_until"] is None
    assert claim("main") == []
    assert headway("gates").out.splitlines()[1].split()[2] == "closed"
    shown = headway("gates", "show", "line").out
    assert re.search(r"^opens +when resumed$", shown, re.MULTILINE)
    assert re.search(r"^capacity +1$", shown, re.MULTILINE)
    headway("gates", "open", "line")
    assert len(claim("main")) == 1


def test_misspelt_gate_is_refused_with_a_suggestion(headway: Headway):
    declare_line()
    enqueue(new_job())
    for name, hint in (
        ("lin", "did you mean line?"),
        ("lan:main", "did you mean lane:main?"),
        ("main", "did you mean lane:main?"),
        ("zzzz", "`headway gates` lists the declared gates"),
    ):
        ran = headway("pause", name)
        assert ran.code == 2
        assert ran.err.strip() == f"headway: the gate {name!r} is not declared ({hint})"
    shown = headway("gates", "show", "lin")
    assert (shown.code, shown.err) == (2, "headway: there is no gate 'lin' (did you mean line?)\n")
    for change in ("resume", "gates open", "gates reset", "gates set --capacity=2"):
        ran = headway(*change.split(), "lin")
        assert ran.code == 2
        assert ran.err == "headway: the gate 'lin' is not declared (did you mean line?)\n"


def test_timed_closing_shows_its_end(headway: Headway):
    declare_line()
    ran = headway("gates", "close", "line", "--until", "2099-12-01T10:00Z", "--json")
    assert ran.document["closed_until"] == 4_099_802_400_000
    ran = headway("gates", "close", "line", "--until", "2099-12-01T10:00Z")
    assert ran.out == "line is closed until 2099-12-01 11:00:00+01:00\n"


def test_permit_released_by_force_is_in_the_trail(headway: Headway):
    declare_line()
    (made,) = enqueue(new_job(gates=(LINE,)))
    claim("main")
    assert headway("gates", "release", "line", made, "--reason", "stuck").out == "released\n"
    assert headway("gates", "show", "line", "--json").document["used"] == 0
    ran = headway("gates", "release", "line", made)
    assert ran.code == 1
    assert headway("audit").code == 0


@pytest.mark.parametrize("target", ["all", "lane:main", "kind:noop", "tenant:acme", "line"])
def test_pause_of_any_target_stops_waiting_jobs_until_resume(headway: Headway, target: str):
    declare_line()
    enqueue(new_job(gates=(LINE,), tenant="acme"))
    ran = headway("pause", target, "--reason", "lunch")
    assert (ran.code, ran.out) == (0, f"{target} is closed until it is opened\n")
    assert claim("main") == []
    assert ran.err == ""
    assert headway("resume", target).code == 0
    assert len(claim("main")) == 1


def test_pause_of_an_unknown_lane_suggests_a_name(headway: Headway):
    enqueue(new_job(lane="calls"))
    ran = headway("pause", "lane:cals")
    assert (ran.code, ran.out) == (0, "lane:cals is closed until it is opened\n")
    assert ran.err == "note: no job of the lane 'cals' is known (did you mean calls?)\n"
    kind = headway("pause", "kind:nop")
    assert kind.err == "note: no job of the kind 'nop' is known (did you mean noop?)\n"
