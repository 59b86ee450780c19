"""The token book: tokens as the store knows them, remembered for a moment."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass

from headway.contract.definitions import DefineRequest, NoteUse
from headway.contract.store import Store
from headway.contract.tokens import TokenSpec
from headway.contract.views import TokensQuery
from headway.core.errors import StoreError, Unauthenticated
from headway.runtime.timing import Timing
from headway.runtime.token_text import matches, parse
from headway.server.access.caller import ANYBODY, Caller, caller_of

FRESH_S = 2.0
"""Seconds for which what was read of a token is believed; a revoked one ends within these."""
MOST = 10_000
NOTE_EACH_S = 60.0

_log = logging.getLogger("headway.server")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Page:
    """What was read of one id."""

    spec: TokenSpec | None
    caller: Caller
    read_at: float


class TokenBook:
    """Finds who holds a token."""

    def __init__(self, store: Store, timing: Timing, *, open_here: bool) -> None:
        """Opens it.

        Args:
            store: where the tokens are.
            timing: for the moments.
            open_here: whether anybody may call as long as the store has no token.
        """
        self._store = store
        self._timing = timing
        self._open_here = open_here
        self._looked_at = float("-inf")
        self._pages: OrderedDict[str, _Page] = OrderedDict()
        self._used: dict[str, int] = {}

    async def is_open(self) -> bool:
        """Whether anybody may call: only where that was allowed, and until the first token.

        Raises:
            StoreError: nobody can tell now.
        """
        if self._open_here and self._timing.monotonic() - self._looked_at > FRESH_S:
            self._open_here = not await self._store.read(TokensQuery())
            self._looked_at = self._timing.monotonic()
        return self._open_here

    async def caller(self, text: str | None) -> Caller | None:
        """Who calls.

        Args:
            text: of the token; None if none was sent.

        Returns:
            The caller; None if it is nobody that is known.

        Raises:
            StoreError: nobody can tell now.
        """
        if await self.is_open():
            return ANYBODY
        if text is None:
            return None
        try:
            token, secret = parse(text)
        except Unauthenticated:
            return None
        page = await self._page(token)
        now = self._timing.wall_at()
        if page.spec is None or not matches(page.spec, secret, now):
            return None
        self._used[token] = now
        return page.caller

    def forget(self, token: str) -> None:
        """What was read of a token, and whether there are any, is read again: it was changed."""
        self._pages.pop(token, None)
        self._looked_at = float("-inf")

    async def note_uses(self) -> None:
        """Tells the store now and then which tokens were used; until it is cancelled."""
        while True:
            await self._timing.pause(NOTE_EACH_S)
            await self.note()

    async def note(self) -> None:
        """Tells the store which tokens were used since it was told last."""
        used, self._used = self._used, {}
        if not used:
            return
        try:
            items = (NoteUse(used=tuple(used.items())),)
            await self._store.define(DefineRequest(items=items, author="server"))
        except StoreError as error:
            _log.warning("the use of tokens is not noted: %s", error)

    async def _page(self, token: str) -> _Page:
        page = self._pages.get(token)
        if page is not None and self._timing.monotonic() - page.read_at < FRESH_S:
            return page
        found = await self._store.read(TokensQuery(ids=(token,)))
        spec = found[0].spec if found else None
        page = _Page(
            spec=spec,
            caller=ANYBODY if spec is None else caller_of(spec),
            read_at=self._timing.monotonic(),
        )
        self._pages[token] = page
        self._pages.move_to_end(token)
        if len(self._pages) > MOST:
            self._pages.popitem(last=False)
        return page
