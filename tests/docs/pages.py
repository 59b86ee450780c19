"""The pages of the documentation, and the code blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<info>[^`]*)$")
_HEADING = re.compile(r"^(#{1,6}) +(.+?)(?: +#+)? *$")
_LINK = re.compile(r"(?<!!)\[[^\[\]]*\]\(<?([^()\s<>]+)>?\)")
_CODE_SPAN = re.compile(r"(`+)(.+?)\1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One fenced block.

    Attributes:
        language: the first word after the fence; empty if there is none.
        options: the other words, such as `file=hello.py`, `output` or `norun`.
        text: the text between the fences.
        line: the number of its first line in the page, from 1.
    """

    language: str
    options: tuple[str, ...]
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file whose text the block contains."""
        names = [one.removeprefix("file=") for one in self.options if one.startswith("file=")]
        return names[0] if names else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One page.

    Attributes:
        path: path of the file.
        blocks: its fenced blocks, in order.
        prose: its lines; lines of blocks are empty, so that line numbers stay the same.
    """

    path: Path
    blocks: tuple[Block, ...]
    prose: tuple[str, ...]

    @property
    def name(self) -> str:
        """The path relative to the project's folder, for files in it."""
        inside = self.path.is_relative_to(ROOT)
        return (self.path.relative_to(ROOT) if inside else self.path).as_posix()

    def links(self) -> list[tuple[int, str]]:
        """Return the line and target of each link outside code spans."""
        return [
            (number, target)
            for number, line in enumerate(self.prose, 1)
            for target in _LINK.findall(_CODE_SPAN.sub("`code`", line))
        ]

    def spans(self) -> list[tuple[int, str]]:
        """Return the line and text of each `code span`."""
        return [
            (number, match[2].strip())
            for number, line in enumerate(self.prose, 1)
            for match in _CODE_SPAN.finditer(line)
        ]

    def headings(self) -> list[tuple[int, str]]:
        """Return the level and text of each heading, in order."""
        found = (_HEADING.match(line) for line in self.prose)
        return [(len(match[1]), match[2]) for match in found if match]

    def anchors(self) -> set[str]:
        """Return the valid anchors of the page, as the usual sites derive them from headings."""
        seen: dict[str, int] = {}
        found: set[str] = set()
        for _, text in self.headings():
            plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", text).strip().lower()
            slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            count = seen.get(slug, 0)
            seen[slug] = count + 1
            found.add(f"{slug}-{count}" if count else slug)
        return found


def read_page(path: Path) -> Page:
    """Read a page.

    Args:
        path: a Markdown file.

    Returns:
        The page.

    Raises:
        ValueError: a fence is never closed.
    """
    blocks: list[Block] = []
    prose: list[str] = []
    fence: re.Match[str] | None = None
    begun = 0
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        match = _FENCE.match(line)
        if fence is None:
            prose.append("" if match else line)
            if match:
                fence, begun = match, number
        else:
            prose.append("")
            if match and match["ticks"].startswith(fence["ticks"]) and not match["info"].strip():
                blocks.append(_block(fence, lines[begun : number - 1], begun + 1))
                fence = None
    if fence is not None:
        message = f"{path}:{begun}: the block is never closed"
        raise ValueError(message)
    return Page(path=path, blocks=tuple(blocks), prose=tuple(prose))


def _block(fence: re.Match[str], lines: list[str], first: int) -> Block:
    language, *options = fence["info"].split() or [""]
    indent = len(fence["indent"])
    text = "".join(f"{line[indent:] if line[:indent].isspace() else line}\n" for line in lines)
    return Block(language=language, options=tuple(options), text=text, line=first)


def all_pages() -> list[Page]:
    """Return every page of the project, by name."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return [read_page(path) for path in sorted(paths)]
