from __future__ import annotations

import re
from enum import StrEnum

import pytest

from headway.contract.operate import Verb
from headway.contract.signals import SignalKind
from headway.core.gates.spec import GateKind
from headway.core.state import State
from headway.core.timetable.schedule import At, Cron, Every
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS = re.findall(r"^\| \*\*(.+?)\*\* \|", TEXT, re.MULTILINE)
FIRST_WORDS = {term.lower() for term in TERMS}


def test_each_term_is_defined_once_and_in_order() -> None:
    assert len(set(TERMS)) == len(TERMS)
    assert sorted(TERMS, key=str.lower) == TERMS


@pytest.mark.parametrize("words", [State, GateKind])
def test_every_state_and_gate_has_its_term(words: type[StrEnum]) -> None:
    told = FIRST_WORDS | {"succeeded", "cancelled"}
    assert [str(one) for one in words if str(one) not in told] == []


def test_every_table_of_the_ledger_has_its_term() -> None:
    path = ROOT / "src" / "headway" / "stores" / "ledger" / "tables.py"
    code = path.read_text(encoding="utf-8")
    tables = re.findall(r"^class (\w+)Table\(Protocol\)", code, re.MULTILINE)
    assert len(tables) > 10
    told = FIRST_WORDS | {"count", "fact"}
    assert [name for name in tables if name.lower() not in told] == []


def test_every_verb_of_the_store_has_its_term() -> None:
    folder = ROOT / "src" / "headway" / "stores" / "ledger" / "verbs"
    code = (folder / "__init__.py").read_text(encoding="utf-8")
    verbs = re.findall(r'^    "(\w+)",', code, re.MULTILINE)
    assert len(verbs) == 15
    told = FIRST_WORDS | {"read", "release_permit", "export_chunk", "import_chunk"}
    assert [name for name in verbs if name not in told] == []


def test_terms_of_moves_signals_and_schedules_are_explained_somewhere() -> None:
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    words = [*Verb, *SignalKind, Cron.__name__, Every.__name__, At.__name__]
    assert [str(word) for word in words if str(word) not in pages] == []
