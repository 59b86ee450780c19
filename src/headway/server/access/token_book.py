"""The token book: tokens as the store knows them, remembered for a moment."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.contract.definitions import DefineRequest, NoteUse
from headway.contract.store import Store
from headway.contract.tokens import TokenSpec
from headway.contract.views import TokensQuery, TokenView
from headway.core.errors import StoreError, Unauthenticated
from headway.runtime.timing import Timing
from headway.runtime.token_text import matches, parse
from headway.server.access.caller import ANYBODY, Caller, caller_of

FRESH_S = 2.0
"""Seconds for which what was read of a token is believed; a revoked one ends within these."""
AWAY_S = 900.0
"""Seconds for which it is believed while the store is away: nobody can revoke a token there then,
and whoever only has to be known, to be answered from elsewhere, is not turned away."""
PATIENCE_S = 1.0
"""Seconds for which the store is asked again about what is known already."""
MOST = 10_000
NOTE_EACH_S = 60.0

_log = logging.getLogger("headway.server")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Page:
    """What was read of one id.

    Attributes:
        spec: the token; None if there is none.
        caller: who holds it.
        read_at: when the store said so.
        asked_at: when it was asked last, though it may have been away.
    """

    spec: TokenSpec | None
    caller: Caller
    read_at: float
    asked_at: float


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
        self._looked_at = self._asked_at = float("-inf")
        self._pages: OrderedDict[str, _Page] = OrderedDict()
        self._used: dict[str, int] = {}

    async def is_open(self) -> bool:
        """Whether anybody may call: only where that was allowed, and until the first token.

        Raises:
            StoreError: nobody can tell now.
        """
        now = self._timing.monotonic()
        if self._open_here and now - self._asked_at > FRESH_S:
            known = now - self._looked_at < AWAY_S
            found = await self._read(TokensQuery(), known=known)
            self._asked_at = self._timing.monotonic()
            if found is not None:
                self._open_here = not found
                self._looked_at = self._asked_at
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
        self._looked_at = self._asked_at = float("-inf")

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
        now = self._timing.monotonic()
        if page is not None and now - page.asked_at < FRESH_S:
            return page
        known = page is not None and now - page.read_at < AWAY_S
        found = await self._read(TokensQuery(ids=(token,)), known=known)
        now = self._timing.monotonic()
        if found is None and page is not None:
            page = replace(page, asked_at=now)
        else:
            spec = found[0].spec if found else None
            caller = ANYBODY if spec is None else caller_of(spec)
            page = _Page(spec=spec, caller=caller, read_at=now, asked_at=now)
        self._pages[token] = page
        self._pages.move_to_end(token)
        if len(self._pages) > MOST:
            self._pages.popitem(last=False)
        return page

    async def _read(self, query: TokensQuery, *, known: bool) -> Sequence[TokenView] | None:
        """Asks the store; None if it is away, and what was read before may be believed.

        Raises:
            StoreError: it is away, and nothing is known.
        """
        if not known:
            return await self._store.read(query)
        try:
            async with self._timing.limit(PATIENCE_S):
                return await self._store.read(query)
        except (StoreError, TimeoutError) as error:
            _log.warning("tokens are believed as they were read before: %s", error)
            return None
