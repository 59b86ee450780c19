from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import FunctionType

import pytest

import headway as hw
from headway.contract.views import StatsView
from headway.core.errors import HeadwayError
from headway.server.metrics import TOTALS
from headway.stores.sqlite.options import SqliteOptions
from tests.docs.docstrings import items
from tests.docs.pages import ROOT, Page, read_page
from tests.docs.tables import FOLDER, TABLES, renewed

SOURCE = ROOT / "src" / "headway"


def page(name: str) -> Page:
    return read_page(FOLDER / name)


def first_cells(text: str) -> set[str]:
    return set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.name)
def test_reference_tables_match_the_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == renewed(text), "run: python -m tests.docs.tables"


def test_every_generated_table_is_in_a_page() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md"))
    assert set(re.findall(r"<!-- table: (\S+) -->", text)) == set(TABLES)


def test_every_public_name_is_in_the_reference() -> None:
    text = "".join((FOLDER / f"{name}.md").read_text("utf-8") for name in ("python", "errors"))
    missing = [
        name
        for name in hw.__all__
        if f"`{name}`" not in text and not re.search(rf"\bhw\.{name}\b", text)
    ]
    assert missing == []
    assert sorted(hw.__all__) == hw.__all__


def test_every_error_can_be_caught_by_its_public_name() -> None:
    def walk(kind: type[HeadwayError]) -> set[str]:
        own = {kind.__name__} if kind.__module__ == HeadwayError.__module__ else set()
        return own.union(*map(walk, kind.__subclasses__()))

    assert walk(HeadwayError) - set(hw.__all__) == set()


@pytest.mark.parametrize("of", [hw.Job, hw.Worker, hw.Kind, *hw.App.__mro__[:-1]])
def test_every_public_method_documents_its_promise(of: type) -> None:
    silent = [
        name
        for name, one in vars(of).items()
        if not name.startswith("_")
        and isinstance(one, FunctionType | property)
        and not inspect.getdoc(one)
    ]
    assert silent == []


def test_every_count_of_the_code_is_in_the_page_of_counts() -> None:
    counted = set[str]()
    for path in SOURCE.rglob("*.py"):
        counted |= set(re.findall(r'happened\(\s*"(\w+)"', path.read_text(encoding="utf-8")))
    # The final states of jobs are counted under the name of the state.
    counted |= {"succeeded", "dead", "cancelled"}
    said = re.findall(r"\w+", items(StatsView, "Attributes")["totals"].partition(":")[2])
    assert counted == set(said)
    assert counted == set(TOTALS)
    assert counted == first_cells((FOLDER / "stats.md").read_text(encoding="utf-8"))


def test_every_variable_of_the_code_is_in_the_page_of_settings() -> None:
    text = (FOLDER / "settings.md").read_text(encoding="utf-8")
    read = set[str]()
    for path in SOURCE.rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        read |= set(re.findall(r'environ(?:\.get\(|\[)\s*"(\w+)"', code))
        read |= set(re.findall(r'^[A-Z_]+ = "(HEADWAY_[A-Z_]*[A-Z])"', code, re.MULTILINE))
    assert read
    assert [name for name in sorted(read) if f"`{name}`" not in text] == []


def test_every_option_of_a_store_s_url_is_in_the_page_of_settings() -> None:
    text = first_cells((FOLDER / "settings.md").read_text(encoding="utf-8"))
    assert set(items(SqliteOptions, "Attributes")) - {"path"} <= text


REASONS = (
    "expired",
    "deadline",
    "lease lost",
    "exhausted",
    "folded",
    "the entry changed",
)


def test_every_reason_of_the_engine_is_in_the_page_of_states() -> None:
    text = (FOLDER / "states.md").read_text(encoding="utf-8")
    folders = (SOURCE / "core", SOURCE / "stores" / "ledger", SOURCE / "runtime")
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    code = "".join(path.read_text(encoding="utf-8") for path in sources)
    assert [reason for reason in REASONS if f"`{reason}`" not in text] == []
    assert [reason for reason in REASONS if f'"{reason}"' not in code] == []
