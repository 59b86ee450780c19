from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import ROOT, Page, all_pages, read_page

PAGES = {page.path: page for page in all_pages()}
INDEX = ROOT / "docs" / "README.md"


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_every_link_leads_to_an_existing_file_and_heading(page: Page) -> None:
    broken = [
        f"{page.name}:{line}: {target} {why}"
        for line, target in page.links()
        if (why := _wrong(page, target))
    ]
    assert broken == []


def _wrong(page: Page, target: str) -> str:
    url = urlsplit(target)
    if url.scheme or url.netloc:
        return "" if url.scheme in {"https", "mailto"} else "is no https link"
    place = page.path if not url.path else (page.path.parent / unquote(url.path)).resolve()
    if not place.is_relative_to(ROOT) or not place.exists():
        return "leads nowhere"
    if url.fragment:
        there = PAGES.get(place) or read_page(place)
        if url.fragment not in there.anchors():
            return "names a heading that does not exist"
    return ""


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, ahead = {INDEX}, [INDEX]
    while ahead:
        here = ahead.pop()
        for _, target in PAGES[here].links():
            there = (here.parent / unquote(urlsplit(target).path)).resolve()
            if there in PAGES and there not in reached:
                reached.add(there)
                ahead.append(there)
    docs = {path for path, page in PAGES.items() if page.path.is_relative_to(ROOT / "docs")}
    assert docs - reached == set()


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES.values() if page.name.startswith(("docs/", "README", "ARCH"))],
    ids=lambda page: page.name,
)
def test_every_page_starts_with_one_title_and_its_purpose(page: Page) -> None:
    assert [level for level, _ in page.headings()].count(1) == 1
    lines = [line for line in page.prose if line.strip()]
    assert lines[0].startswith("# ")
    assert lines[1][0] not in "#|-*>!", (
        f"{page.name}: the first line after the title is no sentence"
    )
