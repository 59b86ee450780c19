"""No statement examines more rows than it returns, as shown by SQLite's own query plans."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import apsw
import pytest

from headway.stores import sqlite
from headway.stores.sql import lanes, records
from headway.stores.sql.statement import Select, Write
from headway.stores.sqlite.connection import create
from headway.stores.sqlite.session import resolve
from tests.sqlite.rig import options

_STATEMENT = re.compile(r"(SELECT|INSERT|UPDATE|DELETE|WITH)\s")
_CONTROL = {"BEGIN", "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"}
_CONTROL |= {"SAVEPOINT part", "RELEASE part", "ROLLBACK TO part"}
LARGE = "job|permit|start|run|event|dedupe|known|trail|gate|answer|tenant_start|flow|word"


def modules() -> list[ModuleType]:
    found = pkgutil.walk_packages(sqlite.__path__, f"{sqlite.__name__}.")
    return [
        lanes,
        records,
        *(import_module(one.name) for one in found if "migrations" not in one.name),
    ]


def statements() -> dict[str, str]:
    """Return every statement of the store, by its location in the source."""
    found: dict[str, str] = {}
    for module in modules():
        for name, value in vars(module).items():
            shared = isinstance(value, Select | Write)
            one = resolve(value.text) if shared else value
            for place, part in enumerate(one if isinstance(one, tuple) else (one,)):
                if isinstance(part, str) and _STATEMENT.match(part):
                    found[f"{module.__name__.removeprefix(sqlite.__name__)}.{name}.{place}"] = part
    return found


@pytest.fixture
def plan_of(path: Path) -> Iterator[apsw.Connection]:
    """Return a database created by the migrations and never analysed."""
    create(options(path))
    db = apsw.Connection(str(path))
    assert not db.table_exists("main", "sqlite_stat1")
    yield db
    db.close()


def plan(db: apsw.Connection, statement: str) -> list[str]:
    numbered = [int(n) for n in re.findall(r"\?(\d+)", statement)]
    bound = max(numbered, default=statement.count("?"))
    rows = db.execute(f"EXPLAIN QUERY PLAN {statement}", (None,) * bound)
    return [str(row[3]) for row in rows]


def test_no_statement_scans_a_growing_table_even_before_analyze(
    plan_of: apsw.Connection,
) -> None:
    scans = {
        where: line
        for where, statement in statements().items()
        for line in plan(plan_of, statement)
        if re.match(rf"SCAN ({LARGE})\b", line)
    }
    assert scans == {}


def test_no_statement_sorts_more_than_it_names(plan_of: apsw.Connection) -> None:
    """A sort reads all candidates first; the statements listed sort rows of one holder or gate."""
    sorts = {
        where.rpartition(".")[0].rpartition(".")[2]
        for where, statement in statements().items()
        for line in plan(plan_of, statement)
        if line.startswith("USE TEMP B-TREE FOR")
    }
    assert sorts == {"HELD_BY", "TAKEN_BY", "LANES_DUE", "_PERMITS"}


def test_scan_of_a_table_would_be_detected(plan_of: apsw.Connection) -> None:
    (line,) = plan(plan_of, "SELECT id FROM job WHERE priority = ?")
    assert re.match(rf"SCAN ({LARGE})\b", line)


def test_every_executed_statement_is_among_those_explained() -> None:
    named = set(statements().values())
    assert len(named) > 80
    for module in modules():
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in {"execute", "executemany"} or not node.args:
                continue
            first = node.args[0]
            if ast.unparse(first) in {"resolve(select.text)", "resolve(write.text)"}:
                # A statement shared by the SQL stores.
                continue
            if isinstance(first, ast.Constant):
                assert first.value in _CONTROL, f"{module.__name__}:{node.lineno}"
            else:
                # A constant of its module, or one that was passed in under a local name.
                assert isinstance(first, ast.Name | ast.Attribute | ast.Subscript | ast.IfExp), (
                    f"{module.__name__}:{node.lineno}"
                )
