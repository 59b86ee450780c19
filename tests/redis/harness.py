"""Runs snippets of Lua over the modules of the Redis store on a real server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import redis

from headway.stores.redis.scripts import key_suffixes, needs, source
from headway.stores.redis.values import decode_untyped, encode, text_of
from tests.redis.normalized import normalized

START_AT = 1_700_000_000_000
_TABLE = re.compile(r"^local ([A-Z]\w*) = \{\}$", re.MULTILINE)

TABLES = (
    "base.run",
    "tables.jobs",
    "tables.gates",
    "tables.permits",
    "tables.starts",
    "tables.lanes",
    "tables.counts",
    "tables.dedupe",
    "tables.signals",
    "tables.workers",
    "tables.declared",
    "tables.trail",
    "verbs.store",
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
Write.finish()
return cmsgpack.pack({ value == nil and 'nothing' or value })
"""


class SnippetFailed(Exception):
    """The snippet raised an error; the message is the snippet's."""


class Snippets:
    """A separate namespace on a server, and Lua to inspect it.

    Args:
        url: URL of the server.
        namespace: a namespace that no other test uses.
        modules: modules for the snippets; those that they need are included.
    """

    def __init__(self, url: str, namespace: str, modules: Sequence[str] = TABLES) -> None:
        self.client: Any = redis.Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType]  (its options have no types)
        self.keys = [f"{{headway:{namespace}}}:{suffix}" for suffix in key_suffixes()]
        self._modules = "".join(_wrapped(module) for module in _ordered(modules))
        self._known: dict[str, str] = {}
        self.now = START_AT

    def text(self, snippet: str) -> str:
        """Return the complete script of a snippet."""
        return self._modules + _FRAME % snippet

    def _sha(self, snippet: str) -> str:
        known = self._known.get(snippet)
        if known is None:
            known = self._known[snippet] = self.client.script_load(self.text(snippet))
        return known

    def run(self, snippet: str, request: object = None) -> Any:
        """Run Lua in one step, with `request` available under that name.

        Returns:
            What the snippet returns; None for nil.

        Raises:
            SnippetFailed: it raised, and its writes since `Write.begin()` were rolled back.
        """
        arguments = [*self.keys, encode(_packable(normalized(request))), str(self.now)]
        try:
            reply = self.client.evalsha(self._sha(snippet), len(self.keys), *arguments)
        except redis.ResponseError as problem:
            raise SnippetFailed(str(problem)) from problem
        (value,) = cast("list[Any]", decode_untyped(msgspec.Raw(reply)))
        return None if value == "nothing" else value

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function of a table; None is passed as nil, but not as the last argument.

        Returns:
            Its first return value, converted by `normalized`; None for nil.
        """
        names = ", ".join(f"request[{place}]" for place in range(1, len(arguments) + 1))
        return normalized(self.run(f"return ({function}({names}))", list(arguments)))

    def contents(self) -> dict[str, dict[bytes, object]]:
        """Return everything in the namespace, without empty keys."""
        found: dict[str, dict[bytes, object]] = {}
        for key in self.keys:
            kind = self.client.type(key)
            if kind == b"hash":
                found[key] = self.client.hgetall(key)
            elif kind == b"zset":
                found[key] = dict(self.client.zrange(key, 0, -1, withscores=True))
        return found

    def close(self) -> None:
        """Remove the namespace."""
        self.client.delete(*self.keys)
        self.client.close()


def _packable(value: object) -> Any:
    """Return text as a script accepts it, including bytes that are not UTF-8."""
    if isinstance(value, str):
        return text_of(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, list):
        return [_packable(one) for one in cast("list[object]", value)]
    if isinstance(value, dict):
        return {name: _packable(one) for name, one in cast("dict[str, object]", value).items()}
    return value


def _ordered(modules: Sequence[str]) -> list[str]:
    """Return the modules, each after those that it needs."""
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
