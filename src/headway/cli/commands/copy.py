"""`headway copy`: everything that a stopped store holds, into another."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.copying import Copied, copy_store
from headway.cli.options import Signed
from headway.cli.postgres import untouched
from headway.cli.progress import progress
from headway.cli.session import Session, store_file
from headway.core.errors import InvalidValue, StoreUnavailable
from headway.stores import open_store

app = new_command()


@command(app)
def copy(
    session: Session,
    source: Annotated[str, typer.Argument(metavar="FROM", help="URL of the store to copy from.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="URL of the store to copy to.")],
    signed: Signed,
) -> None:
    """Copy a stopped store into an empty one, of the same kind or another.

    Jobs in every state with their runs, keys, permits and trails, gates with what was used of
    them, closings, lanes, the timetable and signals kept. Stop the workers and those who send
    first. FROM is closed (`headway pause all`) and stays so; TO opens when all is there.
    With --json: {"rows": {part: number}, "jobs": {state: number}}.

    Raises:
        InvalidValue: both are the same store, or one of them keeps nothing.
        StoreUnavailable: there is no store to copy from.
    """
    session.refuse_store("name both stores as arguments: headway copy FROM TO")
    if source == target:
        message = "the store to copy from and the one to copy to are the same"
        raise InvalidValue(message, hint="give two URLs: headway copy FROM TO")
    if "memory" in {url.partition("://")[0] for url in (source, target)}:
        message = "a store of memory:// is gone with this command"
        raise InvalidValue(message, hint="copy between sqlite, postgresql and redis")
    file = store_file(source)
    if file is not None and not file.exists():
        message = f"there is no store at {file}"
        raise StoreUnavailable(message, hint="say FROM first, then TO")
    copied = asyncio.run(_copy(session, source, target, signed))
    if session.json:
        session.terminal.document({"rows": copied.rows, "jobs": copied.counts})
        return
    session.terminal.line(f"{sum(copied.counts.values())} jobs are copied")
    session.terminal.remark("FROM is closed and stays so; point all processes to TO")


async def _copy(session: Session, source: str, target: str, signed: Signed) -> Copied:
    author = session.author(signed.author)
    old = open_store(untouched(source))
    try:
        new = open_store(target)
        try:
            with progress(session.terminal, "copy jobs") as meter:
                return await copy_store(old, new, author, signed, meter)
        finally:
            await new.close()
    finally:
        await old.close()
