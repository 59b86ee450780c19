"""The scripts: Lua modules, assembled into one text for each verb and each read."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files

from headway.core.errors import InvariantBroken

_QUICK = re.compile(r"^-- quick: (\S+)$", re.MULTILINE)
_NEEDS = re.compile(r"^-- needs:(.*)$", re.MULTILINE)
_TABLE = re.compile(r"^local ([A-Z]\w*) = \{\}$", re.MULTILINE)
_KEY = re.compile(r"^Keys\.(\w+) = KEYS\[(\d+)\]", re.MULTILINE)
_USE = re.compile(r"\bKeys\.(\w+)")
_LINE = re.compile(r"user_script:(\d+):")
_KEYS = "base.keys"
_RUNNER = "base.run"
_QUICK_WAY = "base.quick"
_EAGER = frozenset({"base.write"})
"""Modules with side effects, which must run before any verb."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """The text of one call.

    Attributes:
        name: its module and function, such as "reads.read_jobs.why".
        keys: suffixes of the keys that it uses, in the order in which they are passed.
        sha: hash by which the server knows it once loaded.
        starts: first line of each module, in order.
        modules: their names, in the same order.
    """

    name: str
    text: str
    keys: tuple[str, ...]
    sha: str
    starts: tuple[int, ...]
    modules: tuple[str, ...]

    def locate(self, message: str) -> str:
        """Return an error's message with each line number replaced by a module and its line."""
        return _LINE.sub(lambda found: self._place(int(found.group(1))), message)

    def _place(self, line: int) -> str:
        number = bisect_right(self.starts, line) - 1
        if number < 0:
            return f"{self.name}:{line}:"
        return f"{self.modules[number]}:{line - self.starts[number] + 1}:"


@cache
def script(name: str) -> Script:
    """Return the script of a verb or a read.

    It contains the module, its dependencies, and the runner around them; before these, the verb's
    quick module for the most frequent calls, if there is one.

    Args:
        name: a module with a function `run`, such as "verbs.claim"; or a module and a function,
            such as "reads.read_jobs.why".

    Raises:
        InvariantBroken: a module is missing, has no table, or depends on itself.
    """
    order: dict[str, None] = {}
    folder, file, *function = name.split(".")
    own = f"{folder}.{file}"
    first = _QUICK.search(source(own))
    if first is not None:
        _need(_QUICK_WAY, order, ())
        _need(first.group(1), order, ())
    _need(_RUNNER, order, ())
    _need(own, order, ())
    keys = _keys_of(order)
    parts: list[str] = []
    starts: list[int] = []
    line = 1
    for module in order:
        text = _key_table(keys) if module == _KEYS else _wrapped(module)
        if first is not None and module == first.group(1):
            text += f"{_early_return(module)}\n"
        starts.append(line)
        parts.append(text)
        line += text.count("\n")
    writes = "true" if name.startswith("verbs.") else "false"
    run = f"{_table(own)}, '{function[0] if function else 'run'}', {writes}"
    run += ", request" if first is not None else ""
    parts.append(f"return {_table(_RUNNER)}.call({run})\n")
    text = "".join(parts)
    sha = sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(
        name=name, text=text, keys=keys, sha=sha, starts=tuple(starts), modules=tuple(order)
    )


@cache
def key_suffixes() -> tuple[str, ...]:
    """Return the suffixes of all keys of a namespace, in order.

    Raises:
        InvariantBroken: their numbers have a gap.
    """
    found = [(int(number), name) for name, number in _KEY.findall(source("base.keys"))]
    if [number for number, _ in found] != list(range(1, len(found) + 1)):
        message = "the keys in base/keys.lua are not numbered from 1 on without a gap"
        raise InvariantBroken(message)
    return tuple(name for _, name in found)


@cache
def source(module: str) -> str:
    """Return the text of a module's file.

    Raises:
        InvariantBroken: the file is missing.
    """
    *folders, name = module.split(".")
    file = files("headway.stores.redis").joinpath("lua", *folders, f"{name}.lua")
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        message = f"the script module {module} is missing"
        raise InvariantBroken(message, hint="install Headway again, with its data files") from None


@cache
def needs(module: str) -> tuple[str, ...]:
    """Return the declared dependencies of a module, in order."""
    lines = (line.split(",") for line in _NEEDS.findall(source(module)))
    return tuple(name.strip() for line in lines for name in line if name.strip())


def _need(module: str, order: dict[str, None], under: tuple[str, ...]) -> None:
    if module in order:
        return
    if module in under:
        message = f"the script modules need each other: {' -> '.join((*under, module))}"
        raise InvariantBroken(message)
    for needed in needs(module):
        _need(needed, order, (*under, module))
    order[module] = None


def _keys_of(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the keys that modules use; passing all keys would make a small call 10 % slower.

    Raises:
        InvariantBroken: base/keys.lua lacks one of them.
    """
    used = {name for module in modules if module != _KEYS for name in _uses(module)}
    unknown = used - set(key_suffixes())
    if unknown:
        message = f"the scripts use the key {min(unknown)}, which base/keys.lua does not define"
        raise InvariantBroken(message)
    return tuple(name for name in key_suffixes() if name in used)


def _key_table(keys: tuple[str, ...]) -> str:
    places = (f"{name} = KEYS[{place}]" for place, name in enumerate(keys, 1))
    return f"local {_table(_KEYS)} = {{ {', '.join(places)} }}\n"


@cache
def _uses(module: str) -> frozenset[str]:
    """Return the keys that a module uses."""
    return frozenset(_USE.findall(source(module)))


@cache
def _table(module: str) -> str:
    found = _TABLE.search(source(module))
    if found is None:
        message = f"the script module {module} has no table of its own"
        raise InvariantBroken(message)
    return found.group(1)


def _early_return(module: str) -> str:
    """Return the statement that ends the script if the quick module handles the call.

    The functions after it are then never created.
    """
    call = f"{_table(_QUICK_WAY)}.call({_table(module)})"
    return f"local answer, request = {call} if answer then return answer end"


@cache
def _wrapped(module: str) -> str:
    """Return a module in its own block, because Lua allows at most 200 locals per function.

    It is initialized at first use: creating the functions of all modules would take more than half
    of the time of a small call.
    """
    name = _table(module)
    # On one line with the start of the block, so that line numbers match the file.
    text = _TABLE.sub("", source(module), count=1).rstrip("\n")
    if module in _EAGER:
        return f"local {name} = {{}} do {text}\nend\n"
    return (
        f"local {name} = {{}} setmetatable({name}, {{ __index = function(_, field)"
        f" setmetatable({name}, nil) do {text}\nend return {name}[field] end }})\n"
    )
