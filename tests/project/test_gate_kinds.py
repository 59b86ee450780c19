"""What differs between kinds of gates is stated with the kinds: no other code asks for the kind."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from jinja2 import Environment, nodes

import headway
from headway.core.gates.kinds import KINDS

PACKAGE = Path(headway.__file__).parent
HOMES = ("core/gates/", "stores/ledger/gatekinds.py")
"""Where the kinds, and their rules over the ledger's rows, are stated."""
WORDS = {*map(str, KINDS), "implicit"}
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8")
    for path in PACKAGE.rglob("*")
    if path.suffix in {".py", ".html"}
}


def declares_a_kind(node: ast.ClassDef) -> bool:
    """Return whether a class has a field such as `kind: Literal["slots"]`."""
    return any(
        isinstance(one, ast.AnnAssign)
        and ast.unparse(one.target) == "kind"
        and any(ast.unparse(one.annotation) == f"Literal[{word!r}]" for word in WORDS)
        for one in node.body
    )


CLASSES = {"HoursSpec"} | {
    node.name
    for name, text in SOURCES.items()
    if name.endswith(".py") and "kind: Literal[" in text  # parsing all takes seconds
    for node in ast.walk(ast.parse(text))
    if isinstance(node, ast.ClassDef) and declares_a_kind(node)
}


def last_name(node: ast.AST) -> str:
    """Return "kind" of `gate.kind`, `kind` and `str(gate.kind)`."""
    match node:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case ast.Call(ast.Name("str"), [one]):
            return last_name(one)
        case _:
            return ""


class Questions(ast.NodeVisitor):
    """Finds the lines of a module that ask for a gate's kind."""

    def __init__(self, tree: ast.Module) -> None:
        self.lines: list[int] = []
        self.constants: set[str] = set()
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if self.has_word(node.value) or self.has_kind(node.value):
                    self.constants |= {last_name(one) for one in targets}
        self.visit(tree)

    def has_word(self, node: ast.AST) -> bool:
        """Return whether an expression contains the name of a kind, or a constant with one."""
        return any(
            (isinstance(one, ast.Constant) and one.value in WORDS)
            or (isinstance(one, ast.Name) and one.id in self.constants)
            for one in ast.walk(node)
        )

    def has_kind(self, node: ast.AST) -> bool:
        """Return whether an expression contains `GateKind`, or a class for one kind."""
        return any(last_name(one) in {"GateKind", *CLASSES} for one in ast.walk(node))

    def ask(self, node: ast.expr, values: Iterable[ast.AST]) -> None:
        for value in values:
            if self.has_kind(value) or (last_name(node) == "kind" and self.has_word(value)):
                self.lines.append(node.lineno)

    def visit_Compare(self, node: ast.Compare) -> None:
        values = [node.left, *node.comparators]
        for one in values:
            self.ask(one, (other for other in values if other is not one))
        self.generic_visit(node)

    def visit_Match(self, node: ast.Match) -> None:
        self.ask(node.subject, (case.pattern for case in node.cases))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if last_name(node.func) in {"isinstance", "issubclass"}:
            self.ask(node.args[0], node.args[1:])
        self.generic_visit(node)


def asks_in_template(text: str) -> Iterator[int]:
    """Yield the lines of a template that compare a gate's kind."""
    for node in Environment(autoescape=True).parse(text).find_all((nodes.Compare, nodes.Test)):
        # The cause of a wait has a kind too, which is not a gate's.
        kinds = [
            one
            for one in node.find_all(nodes.Getattr)
            if one.attr == "kind" and getattr(one.node, "name", "") != "cause"
        ]
        if kinds and any(one.value in WORDS for one in node.find_all(nodes.Const)):
            yield node.lineno


def asks(name: str, text: str) -> list[int]:
    if name.endswith(".html"):
        return list(asks_in_template(text))
    return Questions(ast.parse(text)).lines


def test_no_code_outside_the_kinds_of_gates_asks_for_the_kind() -> None:
    assert {"SlotsBody", "RateBody", "HoursTable", "PoolTable"} < CLASSES
    found = {
        f"{name}:{line}"
        for name, text in SOURCES.items()
        if not name.startswith(HOMES)
        for line in asks(name, text)
    }
    assert found == set()


@pytest.mark.parametrize(
    "text",
    [
        "spec.kind is GateKind.POOL",
        "kind != spec.GateKind.RATE",
        "spec.kind in {GateKind.SLOTS, GateKind.POOL}",
        "gate.kind == 'pool'",
        "'rate' == gate.kind",
        "str(gate.kind) in ('slots', 'implicit')",
        "POOL = 'pool'\ngate.kind == POOL",
        "OPEN: frozenset[str] = frozenset(str(one) for one in GateKind)\ngate.kind in OPEN",
        "match spec.kind:\n case GateKind.SLOTS:\n  pass",
        "match gate.kind:\n case 'hours' | 'rate':\n  pass",
        "match body:\n case SlotsBody():\n  pass",
        "isinstance(table, RateTable | PoolTable)",
        "isinstance(table, (int, scenario_gates.HoursTable))",
        "type(body) is HoursBody",
    ],
)
def test_a_module_that_asks_for_the_kind_of_a_gate_is_found(text: str) -> None:
    assert asks("module.py", text)
    other = "job.kind == 'call' or gate.kind is None or event.kind is SignalKind.NOTE"
    assert not asks("module.py", f"{other}\nwords = {{'rate', 'pool'}}\nwords == {{name}}")


@pytest.mark.parametrize(
    "text",
    [
        '{% if view.kind == "rate" %}1{% endif %}',
        '{{ "" if "implicit" != cause.gate.kind else "gate" }}',
        '{% if view.kind in ("slots", "pool") %}1{% endif %}',
        '{% if view.kind is eq("hours") %}1{% endif %}',
    ],
)
def test_a_template_that_asks_for_the_kind_of_a_gate_is_found(text: str) -> None:
    assert asks("page.html", text)
    assert not asks("page.html", '{% if cause.kind == "hours" %}{{ view.kind }}{% endif %}')
