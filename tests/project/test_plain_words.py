"""Words that the code and the documentation avoid, because there is a plain technical one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "headway"
TEXTS = frozenset({".py", ".lua", ".md", ".html", ".sql", ".toml"})

OLD_FASHIONED = (
    "nought",
    "mend",
    "mends",
    "mended",
    "mending",
    "shall",
    "for ever",
    "whoever",
    "whosoever",
    "into being",
    "of its own accord",
    "sends everybody",
    "sees to it",
    "anew",
)
"""Not used in the code or in the documentation."""
UNREVISED = frozenset({"CHANGELOG.md"})
"""Pages whose wording stays as it was written."""
PEOPLE = ("nobody", "somebody", "anybody", "everybody")
"""Not used in the stores, which refer to processes, callers and jobs."""
SCENES = (
    *PEOPLE,
    "told",
    "tells",
    "in vain",
    "called off",
    "becomes of",
    "became of",
)
"""Not used in the revised parts, which name the process, the caller, the reply or the signal."""
REVISED = (
    "bridges",
    "carrier",
    "cli",
    "client",
    "contract",
    "core",
    "lab",
    "runtime",
    "server",
    "systems",
    "testing",
)
"""Folders of the package that must not use scenes."""


def pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for whole words, in any case, also across the end of a line or comment."""
    parts = (r"[\s#*-]+".join(map(re.escape, word.split())) for word in words)
    return re.compile(rf"(?<![\w-])({'|'.join(parts)})(?![\w-])", re.IGNORECASE)


def found(words: tuple[str, ...], paths: Iterator[Path]) -> list[str]:
    """Return each use of a word, as `path:line: word`."""
    unwanted = pattern(words)
    uses: list[str] = []
    for path in paths:
        if path.suffix not in TEXTS:
            continue
        text = path.read_text(encoding="utf-8")
        for use in unwanted.finditer(text):
            line = text.count("\n", 0, use.start()) + 1
            uses.append(f"{path.relative_to(REPOSITORY)}:{line}: {use.group()}")
    return uses


def written() -> Iterator[Path]:
    """Return the files of the package, of the documentation and of the examples."""
    for folder in (SOURCE, REPOSITORY / "docs", REPOSITORY / "examples"):
        yield from folder.rglob("*")
    yield from REPOSITORY.glob("*.md")


def test_code_and_documentation_use_current_words() -> None:
    paths = (path for path in written() if path.name != "CHANGELOG.md")
    assert found(OLD_FASHIONED, paths) == []


def test_stores_speak_of_processes_and_not_of_people() -> None:
    assert found(PEOPLE, (SOURCE / "stores").rglob("*")) == []


def test_revised_parts_name_mechanisms_and_not_scenes() -> None:
    paths = (path for name in REVISED for path in (SOURCE / name).rglob("*"))
    assert found(SCENES, paths) == []


def test_documentation_and_examples_name_mechanisms_and_not_scenes() -> None:
    paths = (path for path in written() if SOURCE not in path.parents)
    assert found(SCENES, (path for path in paths if path.name not in UNREVISED)) == []


@pytest.mark.parametrize("text", ["Whoever waits", "waits for\n    # ever", "MEND it", "x: shall"])
def test_word_is_found_in_any_case_and_across_lines(text: str) -> None:
    assert pattern(OLD_FASHIONED).search(text)


@pytest.mark.parametrize("text", ["amend", "marshall", "forever", "recommend", "form"])
def test_part_of_a_longer_word_is_not_found(text: str) -> None:
    assert pattern(OLD_FASHIONED).search(text) is None
