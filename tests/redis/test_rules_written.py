"""The rules that scripts share with `core` are written from it, and have a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.lua.__main__ import LUA, written
from tools.lua.source import Unsupported
from tools.lua.translate import Rule, Translator


def test_rules_are_what_their_python_says_now() -> None:
    for path, text in written().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: `make lua`"


def test_folder_of_rules_holds_only_what_is_written() -> None:
    assert set((LUA / "rules").iterdir()) == set(written())


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("    try:\n        return a\n    finally:\n        pass", 2),
        ("    b = a\n    return b ** 2", 3),
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
        ("    b: dict[int, int | None] = {}\n    b[a] = None\n    return a", 3),
        ("    b: list[int | None] = []\n    b.append(None)\n    return a", 3),
        ("    b: set[int] = set()\n    b -= {a}\n    return a", 3),
        ("    return min('a', 'b')", 2),
        ("    return min(a, 1, key=abs)", 2),
        ("    return len('é')", 2),
        ("    return a if a else rule(a=a, **{})", 2),
        ("    b = {1: a}\n    for c in b.values():\n        a = c\n    return a", 2),
        ("    b = 1 if a else 'x'\n    return a", 2),
        ("    while any(b for b in [a]):\n        a = 0\n    return a", 2),
    ],
)
def test_python_that_is_not_known_is_refused_with_its_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, line: int
) -> None:
    name = f"odd_rules_{abs(hash(body))}"
    path = tmp_path / f"{name}.py"
    path.write_text(f"def rule(a: int) -> int:\n{body}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    rule = Rule(name, "Odd", ("rule",))
    with pytest.raises(Unsupported, match=rf"{name}\.py:{line}: "):
        Translator((rule,), rule).text()
