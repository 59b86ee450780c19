"""The trail: who did what, when and why, the newest first."""

from __future__ import annotations

from headway.contract.views import TrailQuery, TrailView
from headway.core.check import is_job_id
from headway.core.hidden import hidden_text
from headway.server.access.caller import Caller, Permission
from headway.server.paging import check_number_cursor
from headway.web.page import Facts, Look, Page

ROWS = 50
"""Lines of a page."""
LOOKED_AT = 1_000
"""Lines that one page looks at for those of an author."""


async def read(look: Look) -> Facts:
    """A page of lines; of one target, or of one author, or of both."""
    given = look.values
    target, author = given["target"].strip(), given["author"].strip()
    query = TrailQuery(
        target=target or None,
        cursor=check_number_cursor(given["cursor"] or None),
        limit=LOOKED_AT if author else ROWS,
    )
    page = await look.sight.once(("trail", query), lambda: look.service.store.read(query))
    rows, cursor = list(page.rows), page.cursor
    if author:
        rows = [one for one in rows if one.author == author]
        if len(rows) > ROWS:
            rows, cursor = rows[:ROWS], str(rows[ROWS - 1].seq)
    return {
        "rows": [(one, _leads_to(one), hidden_text(one.reason)) for one in rows],
        "cursor": cursor,
        "looked": LOOKED_AT,
        "kept": {name: given[name] for name in ("target", "author") if given[name]},
    }


def _leads_to(line: TrailView) -> str:
    """What a line's target is, as far as its verb tells: "job", "gate", "lane" or ""."""
    if is_job_id(line.target):
        return "job"
    if line.verb in {"close", "open"}:
        return "gate"
    return next((one for one in ("gate", "lane") if one in line.verb), "")


PAGE = Page(
    path="trail",
    title="Trail",
    template="trail.html",
    fragments=("trail",),
    read=read,
    permission=Permission.OBSERVE,
    reach=Caller.whole,
    params=("target", "author", "cursor"),
)
