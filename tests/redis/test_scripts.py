from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from headway.core.errors import InvariantBroken
from headway.stores.redis import scripts
from headway.stores.redis.scripts import key_suffixes, needs, script, source
from tests.redis.admin import admin, new_job, new_url, opened
from tests.servers.redis import GivenRedis, RedisServer

_LUA = Path(str(files("headway.stores.redis"))) / "lua"
MODULES = sorted(
    f"{path.parent.name}.{path.stem}" for path in _LUA.glob("*/*.lua") if path.parent != _LUA
)
_TABLE = re.compile(r"^local ([A-Z]\w*) = \{\}$", re.MULTILINE)
_USE = re.compile(r"(?<![\w.:'\"])([A-Z][A-Za-z]*[a-z][A-Za-z]*)\.[a-zA-Z_]")


_CALLED = re.compile(r"^function \w+\.(\w+)\((?:request|event|_)\)$", re.MULTILINE)
CALLED = [
    f"{module}.{function}"
    for module in MODULES
    if module.startswith(("verbs.", "reads.read_"))
    for function in _CALLED.findall(source(module))
]


def _tables() -> dict[str, str]:
    return {module: _TABLE.findall(source(module))[0] for module in MODULES}


def _code(module: str) -> str:
    text = re.sub(r"--\[\[.*?\]\]|--[^\n]*", "", source(module), flags=re.DOTALL)
    return re.sub(r"'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"", "''", text)


def test_each_module_has_a_table_of_its_own_name() -> None:
    tables = _tables()
    assert len(set(tables.values())) == len(tables)


@pytest.mark.parametrize("module", MODULES)
def test_module_needs_what_it_uses(module: str) -> None:
    by_table = {table: name for name, table in _tables().items()}
    used = {by_table[name] for name in _USE.findall(_code(module)) if name in by_table} - {module}
    assert used <= _reach(module), f"{module} says not that it needs {used - _reach(module)}"


@pytest.mark.parametrize("module", MODULES)
def test_module_uses_what_another_has(module: str) -> None:
    by_table = {table: name for name, table in _tables().items()}
    used = set(re.findall(r"(?<![\w.:'\"])([A-Z]\w*)\.(\w+)", _code(module)))
    for table, name in sorted(used):
        if table in by_table:
            known = re.findall(rf"\b{table}\.{name}\b(?:\(| =|,.* =)", source(by_table[table]))
            assert known or table == "Jobs", f"{table} has no {name}"


def _reach(module: str) -> set[str]:
    reached: set[str] = set()
    left = [module]
    while left:
        for needed in needs(left.pop()):
            if needed not in reached:
                reached.add(needed)
                left.append(needed)
    return reached


@pytest.mark.parametrize("module", MODULES)
def test_keys_and_arguments_are_read_only_by_the_runner(module: str) -> None:
    code = _code(module)
    if module not in {"base.run", "base.quick", "base.time"}:
        assert "ARGV" not in code
    if module != "base.keys":
        assert "KEYS" not in code
    assert not re.search(r"\b(KEYS|SCAN|RANDOMKEY|BLPOP|math\.random)\b.*call", code)


@pytest.mark.parametrize("name", CALLED)
def test_script_is_accepted_by_the_server(
    name: str, redis_server: RedisServer | GivenRedis
) -> None:
    with admin(redis_server.url) as other:
        assert other.script_load(script(name).text) == script(name).sha


def test_keys_of_a_namespace_are_in_one_slot() -> None:
    suffixes = key_suffixes()
    assert len(set(suffixes)) == len(suffixes)
    assert not any(set("{}") & set(suffix) for suffix in suffixes)


def test_script_receives_the_keys_that_its_modules_use() -> None:
    text = script("verbs.claim")
    assert set(text.keys) < set(key_suffixes())
    assert f"waiting = KEYS[{text.keys.index('waiting') + 1}]" in text.text


def test_place_of_an_error_is_reported_by_module_and_line() -> None:
    claim = script("verbs.claim")
    lines = claim.text.splitlines()
    wanted = "function Claim.run(request)"
    at = next(number for number, line in enumerate(lines, 1) if wanted in line)
    own = next(n for n, line in enumerate(source("verbs.claim").splitlines(), 1) if wanted in line)
    assert claim.locate(f"user_script:{at}: no") == f"verbs.claim:{own}: no"


def test_missing_module_is_a_broken_installation() -> None:
    with pytest.raises(InvariantBroken, match=r"verbs\.nothing is missing"):
        script("verbs.nothing")


def test_modules_that_need_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "base.run": "local Run = {}\n",
        "a.one": "-- needs: a.two\nlocal One = {}\n",
        "a.two": "-- needs: a.one\nlocal Two = {}\n",
    }
    monkeypatch.setattr(scripts, "source", texts.__getitem__)
    with pytest.raises(InvariantBroken, match=r"a\.one -> a\.two -> a\.one"):
        script.__wrapped__("a.one")


async def test_flushed_scripts_are_loaded_again(redis_server: RedisServer | GivenRedis) -> None:
    store = opened(new_url(redis_server.url))
    with admin(redis_server.url) as other:
        await store.enqueue([new_job()])
        other.script_flush()
        assert [one.created for one in await store.enqueue([new_job()])] == [True]
    await store.close()
