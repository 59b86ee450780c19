"""The rules that scripts share with `core` are generated from it, into a separate folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tools.lua.__main__ import LUA, written
from tools.lua.names import Names
from tools.lua.source import Unsupported
from tools.lua.translate import Translator


def test_rules_match_their_python() -> None:
    for path, text in written().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: `make lua`"


def test_folder_of_rules_contains_only_generated_files() -> None:
    assert set((LUA / "rules").iterdir()) == set(written())


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("    try:\n        return a\n    finally:\n        pass", 2),
        ("    b = a\n    return b << 2", 3),
        ("    b = c = abs(a)\n    return b + c", 2),
        ("    c = 1\n    b, c = a, 2\n    return b + c", 3),
        ("    b = [a]\n    b[0] += 1\n    return a", 3),
        ("    while a:\n        if a:\n            continue\n        a -= 1\n    return a", 4),
        ("    b: dict[int, bool] = {}\n    return b.get(a, True)", 3),
        ("    b = {(a, 1.5) for c in [a]}\n    return a", 2),
        ("    return f'{1.5}'", 2),
        ("    return f'{a!r}'", 2),
        ("    return max({'x': a}, key=lambda one: one)", 2),
        ("    for one in {'x': a}:\n        pass\n    return a", 2),
        ("    b = None\n    return a", 2),
        ("    return [None for one in range(a)]", 2),
        ("    return 'a' < 'b'", 2),
        ("    return a.real", 2),
        ("    return hash(a)", 2),
        ("    if a:\n        yield a", 3),
        ("    for b in [a]:\n        a = b\n    else:\n        a = 0\n    return a", 2),
        ("    while a:\n        a -= 1\n    else:\n        a = 0\n    return a", 2),
        ("    for at, b in enumerate([a], 1):\n        a = at + b\n    return a", 2),
        ("    b = [a, a]\n    return b[-2]", 3),
        ("    b = [a, a]\n    return len(b[:-1])", 3),
        ("    b = [a, a]\n    return len(b[::2])", 3),
        ("    for b in [a, a][:-1]:\n        a += b\n    return a", 2),
        ("    b: dict[int, int | None] = {}\n    b[a] = None\n    return a", 2),
        ("    b: list[int | None] = []\n    b.append(None)\n    return a", 2),
        ("    b = {c for c in [a]}\n    b -= {a}\n    return a", 3),
        ("    return min('a', 'b')", 2),
        ("    return min(a, 1, key=abs)", 2),
        ("    return len('é')", 2),
        ("    return a if a else rule(a=a, **{})", 2),
        ("    b = {1: a}\n    for c in b.values():\n        a = c\n    return a", 2),
        ("    b = 1 if a else 'x'\n    return a", 2),
        ("    while any(b for b in [a]):\n        a = 0\n    return a", 2),
        ("    raise ValueError(a, a)", 2),
        ("    if a:\n        b = 1\n    return b", 4),
        ("    b = 1\n    b = None\n    return a", 3),
        ("    b = {1: a}\n    del b[1]\n    return a", 2),
        ("    return 0 < a < 2", 2),
        ("    b: dict[str, int] = {}\n    return b.pop('x', 5)", 3),
        ("    return [b for b in [a] for c in [a]]", 2),
        ("    return [None, a][0]", 2),
        ("    b = 0\n    for b in [a]:\n        pass\n    return b", 3),
        ("    b = ('x', a)\n    return b < ('y', a)", 3),
    ],
)
def test_unsupported_python_is_refused_with_its_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, line: int
) -> None:
    name = f"odd_rules_{abs(hash(body))}"
    with pytest.raises(Unsupported, match=rf"{name}\.py:{line}: "):
        _translated(tmp_path, monkeypatch, name, f"def rule(a: int) -> int:\n{body}\n")


def test_optional_value_is_checked_before_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
def rule(a: str | None, b: str) -> bool:
    return bool(a) and bool(b)
"""
    found = _translated(tmp_path, monkeypatch, "odd_rules_none", text)
    assert "return a ~= nil and a ~= '' and b ~= ''\n" in found


def test_optional_tuple_is_compared_with_one_that_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
def rule(a: tuple[int, int] | None) -> bool:
    return a == (1, 2)
"""
    found = _translated(tmp_path, monkeypatch, "odd_rules_tuple", text)
    assert "return Python.same(a, { 1, 2 })\n" in found


def test_elements_are_placed_without_gaps_if_some_are_omitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
def rule(a: list[int]) -> list[int]:
    return [place for place, one in enumerate(a) if one]
"""
    found = _translated(tmp_path, monkeypatch, "odd_rules_gap", text)
    assert re.search(r"(\w+)\[#\1 \+ 1\] = place\n", found)


def test_function_neither_translated_nor_handwritten_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
from headway.core.check import check_name

def rule(a: str) -> str:
    check_name("a", a)
    return a
"""
    with pytest.raises(Unsupported, match=r"odd_rules_call\.py:5: check_name is neither"):
        _translated(tmp_path, monkeypatch, "odd_rules_call", text)


def test_table_of_the_ledger_is_not_assigned_beside_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
from headway.stores.ledger.ledger import Ledger

def rule(a: Ledger) -> int:
    jobs, b = a.jobs, 1
    return b
"""
    by_hand = {
        "base.run": "-- python: stores.ledger.ledger.Ledger\n",
        "tables.jobs": "-- python: stores.ledger.tables.JobTable\n",
    }
    with pytest.raises(Unsupported, match=r"odd_rules_table\.py:5: a new variable, or a table"):
        _translated(tmp_path, monkeypatch, "odd_rules_table", text, by_hand)


def test_record_is_not_changed_to_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
from dataclasses import replace

from headway.core.gates.view import GateView

def rule(a: GateView) -> GateView:
    return replace(a, opens_at=None)
"""
    with pytest.raises(Unsupported, match=r"odd_rules_replace\.py:7: such changes"):
        _translated(tmp_path, monkeypatch, "odd_rules_replace", text)


def _translated(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
    by_hand: Mapping[str, str] = MappingProxyType({}),
) -> str:
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return Translator(Names({name: "rules.odd"}, by_hand), name, {"rule"}).text()
