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
SCENES = (
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "told",
    "tells",
    "in vain",
    "called off",
    "becomes of",
    "became of",
)
"""Not used either: the text names the process, the caller, the reply or the signal instead."""
UNREVISED = frozenset({"CHANGELOG.md"})
"""Pages whose wording stays as it was written."""


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
    yield from (path for path in REPOSITORY.glob("*.md") if path.name not in UNREVISED)


def test_code_and_documentation_use_current_words() -> None:
    assert found(OLD_FASHIONED, written()) == []


def test_code_and_documentation_name_mechanisms_and_not_scenes() -> None:
    assert found(SCENES, written()) == []


@pytest.mark.parametrize("text", ["Whoever waits", "waits for\n    # ever", "MEND it", "x: shall"])
def test_word_is_found_in_any_case_and_across_lines(text: str) -> None:
    assert pattern(OLD_FASHIONED).search(text)


@pytest.mark.parametrize("text", ["amend", "marshall", "forever", "recommend", "form"])
def test_part_of_a_longer_word_is_not_found(text: str) -> None:
    assert pattern(OLD_FASHIONED).search(text) is None
