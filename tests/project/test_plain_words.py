"""Words that the code and the documentation avoid, and names that mean one thing each."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
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

SAME_IDEA: Mapping[str, str] = {
    # Parts of every SQL store, or of every store with a server.
    "AnyCall": "stores/postgres stores/sqlite",
    "Call": "stores/postgres stores/sqlite",
    "CallQueue": "stores/postgres stores/sqlite",
    "DriverError": "stores/postgres stores/sqlite",
    "ServerFacts": "stores/postgres stores/redis",
    "Session": "stores/postgres stores/sqlite",
    "Woken": "stores/postgres stores/sqlite",
    # A connection to a database, its rows, and its time as a process knows it.
    "Link": "bridges/cassandra stores/postgres stores/redis",
    "Rows": "bridges/cassandra stores/sql",
    "StoreTime": "runtime/worker stores/postgres",
    # Parts of every system.
    "Base": "systems/calls systems/field_service systems/notifications",
    "Channel": "systems/field_service systems/notifications",
    "TheContext": "systems/calls systems/field_service systems/notifications",
    "Thresholds": "systems/automations systems/calls systems/notifications",
    # A type of value or table, as each file format or API reads it.
    "OneOrMany": "server/bodies systems/notifications",
    "SendGridTable": "server/hooks systems/notifications",
    "Share": "carrier lab server/alerts",
    "Shortest": "systems/calls systems/notifications",
    "Span": "lab runtime server/bodies systems/automations",
    "Table": "lab runtime",
    "When": "lab server/bodies",
    "Zone": "systems/calls systems/notifications",
    # Two simulations of a phone network.
    "DrawnOutcome": "carrier lab",
    # A protocol and its class; a class and its public subclass.
    "Migrated": "cli systems/directory",
    "App": ". runtime",
}
"""Public names that several packages define for the same idea, with these packages."""
KEPT: Mapping[str, str] = {
    # At least one of them names a schema in the OpenAPI document.
    "Fault": "systems/directory testing",
    "HoursBody": "server/bodies systems/calls",
    "Outcome": "contract systems/calls",
    "RetryBody": "server/bodies systems/lanes",
    "Status": "systems/field_service systems/lanes systems/notifications",
    "TemplateBody": "systems/calls systems/notifications",
    # The reference describes the class of the bridge.
    "History": "bridges/cassandra lab",
    "Reader": "bridges/cassandra server",
}
"""Public names for several things that stay, because users depend on one of them."""
NO_ALIASES = ("TypeVar", "TypeVarTuple", "ParamSpec")


def pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for whole words, in any case, also across the end of a line or comment."""
    parts = (r"[\s#*-]+".join(map(re.escape, word.split())) for word in words)
    return re.compile(rf"(?<![\w-])({'|'.join(parts)})(?![\w-])", re.IGNORECASE)


def found(words: tuple[str, ...], texts: Iterable[tuple[Path, int, str]]) -> list[str]:
    """Return each use of a word, as `path:line: word`."""
    unwanted = pattern(words)
    uses: list[str] = []
    for path, first, text in texts:
        for use in unwanted.finditer(text):
            line = first + text.count("\n", 0, use.start())
            uses.append(f"{path.relative_to(REPOSITORY)}:{line}: {use.group()}")
    return uses


def written() -> Iterator[tuple[Path, int, str]]:
    """Return the files of the package, of the documentation and of the examples."""
    paths = [path for path in REPOSITORY.glob("*.md") if path.name not in UNREVISED]
    for folder in (SOURCE, REPOSITORY / "docs", REPOSITORY / "examples"):
        paths += folder.rglob("*")
    for path in paths:
        if path.suffix in TEXTS:
            yield path, 1, path.read_text(encoding="utf-8")


def prose(code: str) -> Iterator[tuple[int, str]]:
    """Return comments, docstrings and names of functions, each with its line."""
    for before, token in pairwise(tokenize.generate_tokens(io.StringIO(code).readline)):
        if token.type == tokenize.COMMENT or token.string.startswith('"""'):
            yield token.start[0], token.string
        elif before.string == "def":
            yield token.start[0], token.string.replace("_", " ")


def prose_of_tools() -> Iterator[tuple[Path, int, str]]:
    """Return the prose of the tests and tools, whose data may be any words."""
    for folder in ("tests", "bench", "tools"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            for line, text in prose(path.read_text(encoding="utf-8")):
                yield path, line, text


def defined_names(code: str) -> Iterator[str]:
    """Return the public classes and type aliases of a module."""
    for node in ast.parse(code).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(value=ast.Call(func=ast.Name(id=made))) if made in NO_ALIASES:
                continue
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                pass
            case _:
                continue
        # In this project only classes and types have capitals and small letters.
        if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name):
            yield name


def clashes() -> dict[str, str]:
    """Return the names that several packages define, with these packages in order."""
    packages: defaultdict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for name in defined_names(path.read_text(encoding="utf-8")):
            packages[name].add(path.parent.relative_to(SOURCE).as_posix())
    return {name: " ".join(sorted(one)) for name, one in packages.items() if len(one) > 1}


def test_code_and_documentation_use_current_words() -> None:
    assert found(OLD_FASHIONED, written()) == []


def test_code_and_documentation_name_mechanisms_and_not_scenes() -> None:
    assert found(SCENES, written()) == []


def test_prose_of_tests_and_tools_names_mechanisms_and_not_scenes() -> None:
    assert found((*OLD_FASHIONED, *SCENES), prose_of_tools()) == []


def test_prose_is_comments_docstrings_and_names_of_functions() -> None:
    code = 'def a_b():\n    """Doc."""\n    told = "told"  # why\n'
    assert list(prose(code)) == [(1, "a b"), (2, '"""Doc."""'), (3, "# why")]


def test_public_name_means_one_thing() -> None:
    assert clashes() == {**SAME_IDEA, **KEPT}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("class Call(Base): ...", ["Call"]),
        ("Call = Callable[[], None]", ["Call"]),
        ("Call: TypeAlias = 'Callable[[], None]'", ["Call"]),
        ("Call = TypeVar('Call')\nCALL = 1\ncall = 2\nclass _Call: ...", []),
        ("def make():\n    class Call: ...", []),
    ],
)
def test_classes_and_aliases_of_a_module_are_found(code: str, names: list[str]) -> None:
    assert list(defined_names(code)) == names


@pytest.mark.parametrize("text", ["Whoever waits", "waits for\n    # ever", "MEND it", "x: shall"])
def test_word_is_found_in_any_case_and_across_lines(text: str) -> None:
    assert pattern(OLD_FASHIONED).search(text)


@pytest.mark.parametrize("text", ["amend", "marshall", "forever", "recommend", "form"])
def test_part_of_a_longer_word_is_not_found(text: str) -> None:
    assert pattern(OLD_FASHIONED).search(text) is None
