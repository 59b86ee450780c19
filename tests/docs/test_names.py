from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from functools import cache

import pytest
from typer.main import get_command

import headway as hw
from headway.cli.main import root
from tests.docs.pages import ROOT, Page, all_pages
from tests.docs.play import commands

PAGES = all_pages()
_PATH = re.compile(
    r"^(src|tests|docs|examples|bench|core|contract|stores|runtime|cli|lab|testing)/[\w./*-]+$"
)
_DOTTED = re.compile(r"^(hw|headway(?:\.\w+)+)\.(\w+)(?:\(.*)?$")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_dotted_name_exists(page: Page) -> None:
    missing = [f"{page.name}:{line}: {text}" for line, text in page.spans() if _no_such_name(text)]
    assert missing == []


def _no_such_name(text: str) -> bool:
    match = _DOTTED.match(text)
    if match is None:
        return False
    if match[1] == "hw":
        return not hasattr(hw, match[2])
    try:
        return not hasattr(importlib.import_module(match[1]), match[2]) and not _module(
            f"{match[1]}.{match[2]}"
        )
    except ModuleNotFoundError:
        return True


def _module(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_exists(page: Page) -> None:
    missing = [
        f"{page.name}:{line}: {text}"
        for line, text in page.spans()
        if _PATH.match(text) and not _path_exists(text)
    ]
    assert missing == []


def _path_exists(text: str) -> bool:
    return any(any(folder.glob(text.rstrip("/"))) for folder in (ROOT, ROOT / "src" / "headway"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_exists(page: Page) -> None:
    wrong = [
        f"{page.name}:{line}: {text}: {why}" for line, text in _said(page) if (why := _wrong(text))
    ]
    assert wrong == []


def _said(page: Page) -> Iterator[tuple[int, str]]:
    """Return every call of `headway` in a page, in code spans and in blocks."""
    for line, text in page.spans():
        if text.startswith("headway ") and "…" not in text:
            yield line, text
    for block in page.blocks:
        if block.language == "console":
            lines = [(line, text) for line, text, _ in commands(block)]
        elif block.language in {"sh", "ini"}:
            lines = list(enumerate(block.text.splitlines(), block.line))
        else:
            continue
        for line, text in lines:
            for call in re.findall(r"(?:^|[\s/(;])(headway (?:(?!\$\()[^;|&>)\n])*)", text):
                yield line, call


def _wrong(text: str) -> str:
    try:
        words = shlex.split(text.replace("\\\n", " "))[1:]
    except ValueError:
        words = text.split()[1:]
    known = _options(())
    path: tuple[str, ...] = ()
    for word in words:
        if word.startswith("--"):
            name = word.partition("=")[0].rstrip(".,")
            if name not in known and name not in {"--help", "--"}:
                return f"there is no option {name}"
        elif word in _children(path):
            path = (*path, word)
            known = known | _options(path)
        elif not path and not word.startswith(("-", "<", "$", "sqlite:")):
            return f"there is no command {word}"
    return ""


@cache
def _children(path: tuple[str, ...]) -> tuple[str, ...]:
    found = _find(path)
    return tuple(found.list_commands(None)) if hasattr(found, "list_commands") else ()  # pyright: ignore[reportAttributeAccessIssue]


@cache
def _options(path: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for one in _find(path).params for name in one.opts + one.secondary_opts)


def _find(path: tuple[str, ...]):
    found = get_command(root)
    for name in path:
        found = found.get_command(None, name)  # pyright: ignore[reportAttributeAccessIssue]
    return found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("headway jobs --lane calls --json", ""),
        ("headway gates set x --capacity 3 --reason 'a b'", ""),
        ("headway gates set x --capactiy 3", "there is no option --capactiy"),
        ("headway jbos", "there is no command jbos"),
    ],
)
def test_unknown_command_is_found(text: str, why: str) -> None:
    assert _wrong(text) == why


def test_unknown_name_or_path_is_found() -> None:
    assert _no_such_name("hw.Slot")
    assert _no_such_name("headway.core.claims.decide")
    assert not _no_such_name("headway.core.claim.decide")
    assert not _no_such_name("hw.Slots(name, 1)")
    assert _path_exists("core/claim.py")
    assert not _path_exists("core/claims.py")
