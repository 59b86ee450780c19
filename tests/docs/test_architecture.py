from __future__ import annotations

import re

from tests.docs.pages import ROOT, read_page

PAGE = read_page(ROOT / "ARCHITECTURE.md")
TEXT = PAGE.path.read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "headway"
TREES = ("src", "tests", "docs", "bench", "examples", "requirements", "tools")


def test_architecture_page_fits_two_hundred_lines() -> None:
    assert len(TEXT.splitlines()) <= 200


def test_every_package_is_on_the_map() -> None:
    packages = [path.parent.name for path in SOURCE.glob("*/__init__.py")]
    assert "core" in packages
    assert [name for name in packages if f"{name}/" not in TEXT and name not in TEXT] == []


def test_every_file_that_the_page_names_exists() -> None:
    known = [
        f"/{path.relative_to(ROOT).as_posix()}"
        for path in (*ROOT.glob("*.*"), *(one for top in TREES for one in (ROOT / top).rglob("*")))
    ]
    named = re.findall(r"`([\w./-]+(?:\.(?:py|lua|html|md|toml)|/))`", TEXT)
    assert len(named) > 100
    missing = {
        name for name in named if not any(one.endswith(f"/{name.rstrip('/')}") for one in known)
    }
    assert missing == set()


def test_every_folder_of_tests_is_on_the_list() -> None:
    folders = [path.name for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py"))]
    assert folders
    assert [name for name in folders if f"`tests/{name}`" not in TEXT and name != "examples"] == []


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = (folder / "README.md").read_text(encoding="utf-8")
    files = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [int(name[:4]) for name in files] == list(range(1, len(files) + 1))
    for name in files:
        title = (folder / name).read_text(encoding="utf-8").splitlines()[0]
        assert re.fullmatch(rf"# {name[:4]}: .+", title), title
        assert f"| [{name[:4]}]({name}) | {title.partition(': ')[2]} |" in listed


def test_every_promise_of_the_page_has_its_test() -> None:
    page = (ROOT / "docs" / "explanation" / "promises.md").read_text(encoding="utf-8")
    promised = re.findall(r"^(\d+)\. \*\*", page, re.MULTILINE)
    tests = (ROOT / "tests" / "promises" / "test_promises.py").read_text(encoding="utf-8")
    assert promised == [str(n) for n in range(1, 15)]
    assert [n for n in promised if f"def test_{n}_" not in tests] == []
