"""Runs snippets of Lua over the modules of the Redis store on a real server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import redis

from headway.stores.redis.scripts import key_suffixes, needs, source
from tests.redis.packed import pack, unpack

START_AT = 1_700_000_000_000
_TABLE = re.compile(r"^local ([A-Z]\w*) = \{\}$", re.MULTILINE)

TABLES = (
    "base.fail",
    "tables.jobs",
    "tables.gates",
    "tables.permits",
    "tables.starts",
    "tables.lanes",
    "tables.counts",
    "tables.dedupe",
    "tables.signals",
    "tables.workers",
    "tables.entries",
    "tables.trail",
    "tables.facts",
)

_FRAME = """
local request = cmsgpack.unpack(ARGV[1])
Time.begin(ARGV[2])
local function body()
%s
end
local done, value = pcall(body)
if not done then
  Write.roll_back()
  if type(value) == 'table' then
    value = value.err or (value.refused and value.refused.error) or 'need'
  end
  return redis.error_reply('SNIPPET ' .. tostring(value))
end
return cmsgpack.pack({ value == nil and 'nothing' or value })
"""


class SnippetFailed(Exception):
    """The snippet raised; the message is what it said."""


class Snippets:
    """A namespace of its own on a server, and Lua to look at it.

    Args:
        url: of the server.
        namespace: nobody else's.
        modules: what the snippets may use, with all that it needs.
    """

    def __init__(self, url: str, namespace: str, modules: Sequence[str] = TABLES) -> None:
        self.client = redis.Redis.from_url(url)
        self.keys = [f"{{headway:{namespace}}}:{suffix}" for suffix in key_suffixes()]
        self._modules = "".join(_wrapped(module) for module in _ordered(modules))
        self.now = START_AT

    def text(self, snippet: str) -> str:
        """The whole script of a snippet."""
        return self._modules + _FRAME % snippet

    def run(self, snippet: str, request: object = None) -> Any:  # noqa: ANN401  (a snippet's value)
        """Runs Lua in one step; `request` is there under that name.

        Returns:
            What the snippet returns; None for nil.

        Raises:
            SnippetFailed: it raised, and what it had written since `Write.begin()` was undone.
        """
        arguments = [*self.keys, pack(request), str(self.now)]
        try:
            reply = self.client.eval(self.text(snippet), len(self.keys), *arguments)  # pyright: ignore[reportUnknownMemberType]  (redis-py types it as Any)
        except redis.ResponseError as problem:
            raise SnippetFailed(str(problem)) from problem
        (value,) = unpack(cast("bytes", reply))
        return None if value == "nothing" else value

    def contents(self) -> dict[str, dict[bytes, object]]:
        """All that the namespace holds; a key that holds nothing is left out."""
        found: dict[str, dict[bytes, object]] = {}
        client: Any = self.client
        for key in self.keys:
            kind = client.type(key)
            if kind == b"hash":
                found[key] = client.hgetall(key)
            elif kind == b"zset":
                found[key] = dict(client.zrange(key, 0, -1, withscores=True))
        return found

    def close(self) -> None:
        """Removes the namespace."""
        self.client.delete(*self.keys)
        self.client.close()


def _ordered(modules: Sequence[str]) -> list[str]:
    """The modules, and before each what it needs."""
    order: dict[str, None] = {}

    def need(module: str) -> None:
        if module not in order:
            for needed in needs(module):
                need(needed)
            order[module] = None

    for module in modules:
        need(module)
    return list(order)


def _wrapped(module: str) -> str:
    text = source(module)
    found = _TABLE.search(text)
    assert found is not None, module
    return f"local {found.group(1)} = {{}} do\n{text.replace(found.group(0), '', 1)}\nend\n"
