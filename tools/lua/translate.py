"""One module of Python as one module of Lua 5.1: its functions, statements and expressions.

An expression may need statements before it (a loop for `any(...)`): they are written first, into
the lines of the function, and the expression is then the name of what they found.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from textwrap import wrap
from types import FunctionType
from typing import Any, NamedTuple

from tools.lua import source
from tools.lua.source import BOOL, BYTES, FLOAT, INT, NONE, NOT_GIVEN, STR, Type

OR, AND, COMPARE, CONCAT, ADD, MULTIPLY, UNARY, ATOM = range(8)
_RESERVED = {*keyword.kwlist, *("end", "function", "local", "nil", "repeat", "then", "until")}
_RESERVED |= {"do", "elseif", "ipairs", "math", "next", "pairs", "string", "table", "type"}
_ARITHMETIC = {
    ast.Add: ("+", ADD),
    ast.Sub: ("-", ADD),
    ast.Mult: ("*", MULTIPLY),
    ast.Div: ("/", MULTIPLY),
    ast.Mod: ("%", MULTIPLY),
}
_COMPARED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_SCALARS = {"int", "float", "str", "bool", "none"}
_NUMBERS = {"int", "float"}


@dataclass(frozen=True)
class Rule:
    """A module to translate.

    Attributes:
        module: of Python.
        table: of Lua; the class of this name gives it its methods.
        names: functions, constants, classes and methods; what they use of their module comes along.
    """

    module: str
    table: str
    names: tuple[str, ...]

    @property
    def file(self) -> str:
        parts = "".join(f"_{one.lower()}" if one.isupper() else one for one in self.table)
        return f"rules.{parts.strip('_')}"


def table_of(file: str) -> str:
    """The table of a module that is written by hand: "engine.gate_book" has GateBook."""
    return file.rpartition(".")[2].title().replace("_", "")


class Value(NamedTuple):
    """An expression in Lua, its type, and how tightly it binds."""

    text: str
    type: Type
    binds: int = ATOM

    def at(self, least: int) -> str:
        return self.text if self.binds >= least else f"({self.text})"


class Translator:
    """The translation of one module."""

    def __init__(
        self, rules: Sequence[Rule], rule: Rule, by_hand: Mapping[str, str] | None = None
    ) -> None:
        self.rules = {one.module: one for one in rules}
        self.by_hand = by_hand or {}
        self.rule = rule
        self.module = source.read(rule.module)
        self.needs: set[str] = set()
        self.constants: dict[str, str] = {}
        self.comparers: dict[str, list[str]] = {}
        self.wanted: dict[str, tuple[ast.FunctionDef, Any]] = {}
        self.lines: list[str] = []
        self.depth = 0
        self.types: dict[str, Type] = {}
        self.declared: dict[ast.stmt, set[str]] = {}
        self.used: set[str] = set()
        self.emptied: set[str] = set()

    # The module

    def text(self) -> str:
        """The whole file."""
        for name in self.rule.names:
            self.want(name)
        bodies: dict[str, list[str]] = {}
        while missing := [name for name in self.wanted if name not in bodies]:
            bodies[missing[0]] = self.function(missing[0], *self.wanted[missing[0]])
        bodies = dict(sorted(bodies.items(), key=lambda one: self.wanted[one[0]][0].lineno))
        head = [f"-- Written by `make lua` from {self.module.name}: change that."]
        head += _commented(self.module.tree)
        lines = wrap(", ".join(sorted(self.needs)), 90) or [""]
        head += [*(f"-- needs: {line.rstrip(',')}".rstrip() for line in lines), ""]
        head += [f"local {self.rule.table} = {{}}", ""]
        for name, text in sorted(self.constants.items()):
            head.append(f"{'' if '.' in name else 'local '}{name} = {text}")
        head += [""] * bool(self.constants)
        head += [line for lines in self.comparers.values() for line in [*lines, ""]]
        private = [f"local {name}" for name in bodies if "." not in name]
        head += [*private, ""] if private else []
        return "\n".join([*head, *(line for lines in bodies.values() for line in [*lines, ""])])

    def want(self, name: str) -> None:
        owner, _, method = name.partition(".")
        found = self.module.values.get(owner)
        if isinstance(found, FunctionType):
            self.name(self.module.tree, found)
        elif isinstance(found, type):
            own = [one for one in vars(found) if f"{owner}.{one}" in self.module.functions]
            for one in [method] if method else own:
                self.name(self.module.tree, vars(found)[one])
        else:
            self.constants[f"{self.rule.table}.{name}"] = self.literal(self.module.tree, found).text

    def name(self, node: ast.AST, function: Any) -> str:
        """The name of a function or method in Lua; it is translated too if it is this module's."""
        function = getattr(function, "fget", function)
        rule = self.rules.get(function.__module__)
        owner, _, name = function.__qualname__.rpartition(".")
        is_named = rule is not None and function.__qualname__ in rule.names
        if not is_named and (text := self.hand(function)):
            return text
        is_own = rule is self.rule
        is_public = not name.startswith("_") and owner in {"", rule and rule.table}
        is_public = is_public or is_named
        if rule is None or not (is_own or is_public):
            raise self.unknown(node, f"{function.__qualname__} is not translated")
        text = f"{rule.table}.{lua_name(name.strip('_'))}" if is_public else name
        if owner not in {"", rule.table} and not is_public:
            text = f"{owner}_{name.strip('_')}"
        if is_own:
            tree = self.module.functions[function.__qualname__]
            self.wanted.setdefault(text, (tree, function))
        else:
            self.needs.add(rule.file)
        return text

    def hand(self, function: Any) -> str:
        """The name of what is written by hand in Lua; "" for what is not."""
        whole = f"{function.__module__}.{function.__qualname__}"
        owner, _, name = whole.rpartition(".")
        place = self.by_hand.get(whole) or self.by_hand.get(owner)
        if place is None:
            return ""
        file, _, other = place.partition(":")
        if "." in other:
            return other
        self.needs.add(file)
        return f"{table_of(file)}.{lua_name(other or name.strip('_'))}"

    def is_passed(self, kind: Type, method: Any) -> bool:
        """Whether a method is passed its object: not if it stands in another module of Lua."""
        whole = f"{method.__module__}.{method.__qualname__}"
        files = [self.by_hand.get(one) for one in (whole, whole.rpartition(".")[0])]
        return not self.is_single(kind) and (files[0] is None or files[0] == files[1])

    def is_single(self, kind: Type) -> bool:
        """Whether a script has only one of it, which is not passed on: a table of the ledger."""
        record = kind.record
        is_ours = record is not None and getattr(record, "_is_protocol", False)
        return is_ours and f"{record.__module__}.{record.__qualname__}" in self.by_hand

    def function(self, name: str, node: ast.FunctionDef, function: Any) -> list[str]:
        self.lines, self.depth, self.emptied = [], 0, set()
        self.declared = source.declarations(node)
        parameters = source.parameters_of(function)
        self.types = {one: kind for one, kind, _ in parameters}
        names = [lua_name(one) for one, kind, _ in parameters if not self.is_single(kind)]
        self.used = {*names, *source.names_of(node)}
        owner = function.__qualname__.rpartition(".")[0]
        marks = [ast.unparse(one) for one in node.decorator_list]
        self.refuse(marks not in ([], ["property"]), node, "a decorator")
        if owner:
            self.types["self"] = Type("record", record=self.module.values[owner])
            names.insert(0, "self")
        for line in _commented(node):
            self.write(line)
        with self.inside(f"function {name}({', '.join(names)})"):
            self.block(node.body)
        return self.lines

    # Lines

    def write(self, *lines: str) -> None:
        every = (one for line in lines for one in line.split("\n"))
        self.lines += ["  " * self.depth + line for line in every]

    @contextmanager
    def inside(self, head: str, end: str = "end") -> Iterator[None]:
        self.write(head)
        self.depth += 1
        yield
        self.depth -= 1
        if end:
            self.write(end)

    @contextmanager
    def captured(self, deeper: int = 0) -> Iterator[list[str]]:
        """What is written meanwhile goes into a list of its own."""
        kept, self.lines = self.lines, []
        self.depth += deeper
        yield self.lines
        self.lines = kept
        self.depth -= deeper

    def temporary(self, stem: str) -> str:
        names = (f"{stem}{number}" if number > 1 else stem for number in count(1))
        name = next(one for one in names if one not in self.used and one not in _RESERVED)
        self.used.add(name)
        return name

    def kept(self, value: Value, stem: str) -> Value:
        """The value of a call in a variable, so that it is called once and before what follows."""
        if "(" not in value.text and "{" not in value.text:
            return value
        name = self.temporary(stem)
        self.write(f"local {name} = {value.text}")
        return Value(name, value.type)

    def values(self, nodes: Sequence[ast.expr]) -> list[Value]:
        """Expressions in their order, though one of them needs statements before it."""
        found: list[Value] = []
        for node in nodes:
            with self.captured() as lines:
                value = self.value(node)
            found = [self.kept(one, "value") for one in found] if lines else found
            self.lines += lines
            found.append(value)
        return found

    def unknown(self, node: ast.AST, what: str) -> source.Unsupported:
        return self.module.unsupported(node, what)

    def refuse(self, is_unknown: object, node: ast.AST, what: str) -> None:
        if is_unknown:
            raise self.unknown(node, what)

    def some(self, node: ast.AST, *kinds: Type) -> None:
        """Refuses None in a list, tuple, set or dict, where Lua would have nothing."""
        self.refuse(kinds[0].optional or NONE in kinds, node, "None kept")

    def texts(self, nodes: Sequence[ast.expr]) -> str:
        return ", ".join(one.text for one in self.values(nodes))

    def python(self, name: str, arguments: str) -> str:
        self.needs.add("base.python")
        return f"Python.{name}({arguments})"

    # Statements

    def block(self, body: Sequence[ast.stmt]) -> None:
        for place, node in enumerate(body):
            line = node.lineno
            while line - 1 in self.module.comments:
                line -= 1
            for one in range(line, node.lineno):
                self.write(f"-- {self.module.comments[one]}")
            if isinstance(node, ast.If) and _continues(node.body):
                # Lua 5.1 has no `continue`: what follows goes into the else.
                self.refuse(node.orelse, node, "a continue with an else")
                self.branch(node, node.body[:-1], body[place + 1 :])
                return
            self.dispatch("do", node)(node)
            if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return | ast.Raise):
                self.narrow(node.test, ast.Is)

    def narrow(self, test: ast.expr, op: type[ast.cmpop]) -> None:
        """Notes that a variable is not None where a test has said so."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == (op is ast.IsNot):
            for one in test.values:
                self.narrow(one, op)
        elif isinstance(test, ast.Compare) and isinstance(test.ops[0], op):
            left, right = ast.unparse(test.left), ast.unparse(test.comparators[0])
            if right == "None" and "(" not in left and left not in self.emptied:
                self.types[left] = replace(self.probe(test.left).type, optional=False)

    def empty(self, target: ast.expr, value: Type) -> None:
        """Notes that a variable may be None again, whatever a test has said."""
        text = ast.unparse(target)
        for one in [one for one in self.types if one.startswith(f"{text}.")]:
            del self.types[one]
        was_narrowed = text in self.types and not self.types[text].optional
        if was_narrowed and (value.optional or value == NONE):
            self.types[text] = replace(self.types[text], optional=True)
            self.emptied.add(text)

    def merge(self, known: dict[str, Type]) -> None:
        """Forgets what a block has found out of the variables that are known outside it."""
        self.types |= {one: kind for one, kind in known.items() if one not in self.emptied}

    def dispatch(self, prefix: str, node: ast.AST) -> Callable[[ast.AST], Value]:
        method = getattr(self, f"{prefix}_{type(node).__name__.lower()}", None)
        self.refuse(method is None, node, "what the translator does not know")
        return method

    def declare(self, node: ast.stmt, *besides: str) -> None:
        names = sorted(self.declared.pop(node, set()) - set(besides))
        if names:
            self.write(f"local {', '.join(map(lua_name, names))}")

    def do_pass(self, _: ast.Pass) -> None:
        """Lua needs nothing in an empty block."""

    do_assert = do_pass

    do_delete = do_pass

    def do_raise(self, node: ast.Raise) -> None:
        """An error of the tree, whose first argument is its message."""
        call = node.exc
        is_known = isinstance(call, ast.Call) and len(call.args) == 1 and not call.keywords[1:]
        self.refuse(not is_known, node, "such an error")
        self.needs.add("base.run")
        words = self.values([call.args[0], *(one.value for one in call.keywords)])
        texts = ", ".join(one.text for one in words)
        self.write(f"Run.refuse({quoted(_called(call))}, {texts})")

    def do_break(self, _: ast.Break) -> None:
        self.write("break")

    def do_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        self.refuse(not isinstance(node.value, ast.Call), node, "an expression as a statement")
        text = self.value(node.value).text
        if text not in self.used:
            self.write(text)

    def do_return(self, node: ast.Return) -> None:
        self.write(f"return {self.value(node.value).text}" if node.value else "return")

    def do_annassign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.types[node.target.id] = self.module.annotation(node.annotation)
        if node.value is not None:
            self.assign(node, node.target, node.value)

    def do_assign(self, node: ast.Assign) -> None:
        first, *others = node.targets
        self.assign(node, first, node.value)
        for target in others:
            # A call is made once.
            value = node.value if isinstance(node.value, ast.Constant) else first
            self.assign(node, target, value)

    def do_augassign(self, node: ast.AugAssign) -> None:
        target = self.place(node.target)
        if target.type.kind == "set":
            self.refuse(not isinstance(node.op, ast.BitOr), node, "an operator of sets")
            with self.inside(f"for one in pairs({self.value(node.value).text}) do"):
                self.write(f"{target.text}[one] = true")
            return
        result = self.arithmetic(node, node.op, target, self.value(node.value))
        self.write(f"{target.text} = {result.text}")

    def place(self, node: ast.expr) -> Value:
        """What is assigned to; what it belongs to is called once."""
        if isinstance(node, ast.Attribute):
            owner = self.kept(self.value(node.value), "owner")
            return self.field(node, owner)
        return self.value(node)

    def assign(self, node: ast.stmt, target: ast.expr, source: ast.expr) -> None:
        if isinstance(target, ast.Tuple):
            self.unpack(node, target, source)
        elif not isinstance(target, ast.Name):
            self.declare(node)
            place, value = self.place(target), self.value(source)
            self.empty(target, value.type)
            if isinstance(target, ast.Subscript):
                self.some(node, place.type, value.type)
            self.write(f"{place.text} = {value.text}")
        else:
            name = lua_name(target.id)
            if self.is_single(kind := self.probe(source).type):
                self.types[target.id] = kind
                self.declare(node, target.id)
                return
            local = "local " * (target.id in self.declared.get(node, ()))
            self.declare(node, target.id)
            with self.captured() as lines:
                value = self.value(source)
            is_own = target.id not in {getattr(one, "id", "") for one in ast.walk(source)}
            head = lines[0].strip() if is_own and lines else ""
            if head in {f"local {value.text} = {{}}", f"local {value.text}"}:
                # A comprehension, or both branches of a choice, fill the variable itself.
                lines = [_renamed(line, value.text, name) for line in lines]
                lines[0] = lines[0] if local else lines[0].replace("local ", "")
                self.lines += lines
            else:
                self.lines += lines
                is_empty = local and value.text == "nil"
                self.write(f"{local}{name}" if is_empty else f"{local}{name} = {value.text}")
            kind = self.types.setdefault(target.id, value.type)
            self.empty(target, value.type)
            self.refuse(kind == NONE, node, "give this variable an annotation")

    def unpack(self, node: ast.stmt, target: ast.Tuple, source: ast.expr) -> None:
        if isinstance(source, ast.Tuple):
            values = self.values(source.elts)
        else:
            whole = self.kept(self.value(source), "found")
            parts = self.parts(target, whole.type)
            values = [Value(f"{whole.text}{at}", kind) for at, kind in parts]
        pairs = [*zip(target.elts, values, strict=True)]
        fresh = self.declared.get(node, set())
        is_fresh = all(isinstance(one, ast.Name) and one.id in fresh for one, _ in pairs)
        if is_fresh:
            self.declared.pop(node)
        self.declare(node)
        for one, value in pairs:
            if isinstance(one, ast.Name):
                self.types.setdefault(one.id, value.type)
        places = ", ".join(self.place(one).text for one, _ in pairs)
        for one, value in pairs:
            self.empty(one, value.type)
        self.write(f"{'local ' * is_fresh}{places} = {', '.join(value.text for _, value in pairs)}")

    def do_if(self, node: ast.If) -> None:
        self.branch(node, node.body, node.orelse)

    def branch(self, node: ast.If, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        self.declare(node)
        test = self.condition(node.test)
        if not body:
            test, body, orelse = negated(test), orelse, []
        known = dict(self.types)
        self.narrow(node.test, ast.IsNot)
        with self.inside(f"if {test.text} then", ""):
            self.block(body)
        self.merge(known)
        while len(orelse) == 1 and isinstance(orelse[0], ast.If):
            inner = orelse[0]
            with self.captured() as lines:
                test = self.condition(inner.test)
            if lines or inner in self.declared or _continues(inner.body):
                break
            with self.inside(f"elseif {test.text} then", ""):
                self.block(inner.body)
            orelse = inner.orelse
        if orelse:
            with self.inside("else", ""):
                self.block(orelse)
        self.merge(known)
        self.write("end")

    def do_while(self, node: ast.While) -> None:
        self.declare(node)
        with self.captured() as lines:
            test = self.condition(node.test)
        self.refuse(lines or node.orelse, node, "a loop in the condition, or an else")
        known = dict(self.types)
        with self.inside(f"while {test.text} do"):
            self.block(node.body)
        self.merge(known)

    def do_for(self, node: ast.For) -> None:
        self.refuse(node.orelse, node, "an else of a loop")
        self.declare(node)
        with self.loop(node.target, node.iter):
            known = dict(self.types)
            self.block(node.body)
            self.merge(known)

    @contextmanager
    def loop(
        self, target: ast.expr, over: ast.expr, *, any_order: bool = False, counter: str = "_"
    ) -> Iterator[None]:
        """The loop of a for statement or a comprehension."""
        first: list[str] = []
        name, given = _called(over), over.args if isinstance(over, ast.Call) else []
        if name == "enumerate" and isinstance(target, ast.Tuple):
            self.refuse(given[1:], over, "another start")
            counter = self.temporary("at")
            items = self.value(given[0])
            first.append(f"local {self.bound(target.elts[0], INT, first)} = {counter} - 1")
            one = self.bound(target.elts[1], self.item(over, items), first)
            head = f"{counter}, {one} in ipairs({items.text})"
        elif name == "values" and isinstance(over, ast.Call):
            assert isinstance(over.func, ast.Attribute)
            self.refuse(not any_order, over, "a dict has no order in Lua")
            items = self.value(over.func.value)
            head = f"_, {self.bound(target, items.type.parts[1], first)} in pairs({items.text})"
        elif upper := _first_part(over):
            items = self.kept(self.value(over.value), "list")
            counter = self.temporary("at") if counter == "_" else counter
            one = self.bound(target, self.item(over, items), first)
            first.append(f"local {one} = {items.text}[{counter}]")
            head = f"{counter} = 1, math.min({self.value(upper).text}, #{items.text})"
        else:
            items = self.value(over)
            if items.type.kind == "set":
                head = f"{self.bound(target, items.type.parts[0], first)} in pairs({items.text})"
            else:
                one = self.bound(target, self.item(over, items), first)
                head = f"{counter}, {one} in ipairs({items.text})"
        with self.inside(f"for {head} do"):
            self.write(*first)
            yield

    def bound(self, target: ast.expr, kind: Type, first: list[str]) -> str:
        """The name that a loop binds; what takes a tuple apart goes into `first`."""
        if isinstance(target, ast.Name):
            self.types[target.id] = kind
            return lua_name(target.id)
        assert isinstance(target, ast.Tuple)
        whole = self.temporary("each")
        pairs = zip(target.elts, self.parts(target, kind), strict=True)
        found = [(self.bound(one, part, first), at) for one, (at, part) in pairs]
        names, places = zip(*(one for one in found if one[0] != "_"), strict=True)
        first.append(f"local {', '.join(names)} = {', '.join(whole + at for at in places)}")
        return whole

    def parts(self, node: ast.AST, kind: Type) -> list[tuple[str, Type]]:
        """How the elements of a tuple are reached, and their types."""
        if kind.kind == "tuple":
            return [(f"[{place}]", one) for place, one in enumerate(kind.parts, 1)]
        if kind.record is not None and issubclass(kind.record, tuple):
            return [(f".{name}", one) for name, (one, _) in source.fields_of(kind.record).items()]
        raise self.unknown(node, f"taking a {kind.kind} apart")

    def item(self, node: ast.AST, value: Value) -> Type:
        """The type of a list's elements, or of a tuple's that are alike."""
        if value.type.kind == "list" or (
            value.type.kind == "tuple" and len(set(value.type.parts)) == 1
        ):
            return value.type.parts[0]
        raise self.unknown(node, f"going through a {value.type.kind}")

    # Conditions

    def condition(self, node: ast.expr) -> Value:
        """An expression where only its truth counts."""
        if isinstance(node, ast.BoolOp):
            return self.connected(node, self.condition)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return negated(self.condition(node.operand))
        return self.truth(node, self.value(node))

    def probe(self, node: ast.expr) -> Value:
        """A value that is not written: its type is looked at."""
        used, types = set(self.used), dict(self.types)
        with self.captured():
            value = self.value(node)
        self.used, self.types = used, types
        return value

    def truth(self, node: ast.AST, value: Value) -> Value:
        kind = value.type.kind
        if kind in {"bool", "record", "function", "none"}:
            return value
        value = self.kept(value, "value") if value.type.optional else value
        if kind == "list":
            test = Value(f"#{value.at(UNARY)} > 0", BOOL, COMPARE)
        elif kind in {"dict", "set"}:
            test = Value(f"next({value.text}) ~= nil", BOOL, COMPARE)
        elif kind in {"int", "str"}:
            test = Value(f"{value.at(CONCAT)} ~= {'0' if kind == 'int' else EMPTY}", BOOL, COMPARE)
        else:
            raise self.unknown(node, f"the truth of a {kind}")
        if value.type.optional:
            return Value(f"{value.text} ~= nil and {test.text}", BOOL, AND)
        return test

    def connected(self, node: ast.BoolOp, each: Callable[[ast.expr], Value]) -> Value:
        """`and` and `or`."""
        word, binds = ("and", AND) if isinstance(node.op, ast.And) else ("or", OR)
        whole, known = each(node.values[0]), dict(self.types)
        for before, one in zip(node.values, node.values[1:], strict=False):
            self.narrow(before, ast.IsNot if word == "and" else ast.Is)
            with self.captured() as lines:
                value = each(one)
            self.refuse(lines, one, "a loop that is not always needed")
            whole = Value(f"{whole.at(binds)} {word} {value.at(binds + 1)}", BOOL, binds)
        self.merge(known)
        return whole

    def of_boolop(self, node: ast.BoolOp) -> Value:
        if all(isinstance(one, ast.Compare) or self.probe(one).type == BOOL for one in node.values):
            return self.connected(node, self.value)
        self.refuse(isinstance(node.op, ast.And) or node.values[2:], node, "values beside bools")
        left, right = self.values(node.values)
        kind = replace(left.type, optional=right.type.optional or right.type == NONE)
        if right.text in {EMPTY, "0", "{}"} or left.type.kind in {"record", "function"}:
            return Value(f"{left.at(OR)} or {right.at(AND)}", kind, OR)
        left = self.kept(left, "value")
        test = self.truth(node, left).at(AND)
        return Value(f"{test} and {left.text} or {right.at(AND)}", kind, OR)

    def of_ifexp(self, node: ast.IfExp) -> Value:
        test = self.condition(node.test)
        known = dict(self.types)
        self.narrow(node.test, ast.IsNot)
        with self.captured(1) as one:
            body = self.value(node.body)
        self.merge(known)
        self.narrow(node.test, ast.Is)
        with self.captured(1) as two:
            other = self.value(node.orelse)
        self.merge(known)
        kind = self.either(node, body.type, other.type)
        if not (one or two or body.type.optional or body.type.kind in {"bool", "none"}):
            return Value(f"{test.at(AND)} and {body.at(AND)} or {other.at(AND)}", kind, OR)
        name = self.temporary("value")
        self.write(f"local {name}")
        with self.inside(f"if {test.text} then", ""):
            self.lines += one
            self.write(f"{name} = {body.text}")
        with self.inside("else"):
            self.lines += two
            self.write(f"{name} = {other.text}")
        return Value(name, kind)

    def either(self, node: ast.AST, one: Type, other: Type) -> Type:
        if NONE in {one, other}:
            return replace(other if one == NONE else one, optional=True)
        kinds = {one.kind, other.kind}
        self.refuse(len(kinds) > 1 and not kinds <= {"list", "tuple"}, node, "two types in one")
        chosen = other if one.kind == "tuple" or one.parts == (NONE,) else one
        return replace(chosen, optional=one.optional or other.optional)

    def of_compare(self, node: ast.Compare) -> Value:
        nodes = [node.left, *node.comparators]
        if isinstance(node.ops[0], ast.In | ast.NotIn) and isinstance(nodes[1], ast.Set):
            left = self.kept(self.value(node.left), "value")
            others = [one.at(CONCAT) for one in self.values(nodes[1].elts)]
            test = Value(" or ".join(f"{left.text} == {one}" for one in others), BOOL, OR)
            return negated(test) if isinstance(node.ops[0], ast.NotIn) else test
        values = self.values(nodes)
        if len(values) > 2:
            values = [self.kept(one, "value") for one in values]
        pairs = zip(node.ops, nodes, values, values[1:], strict=False)
        tests = [self.compared(one, op, left, right) for op, one, left, right in pairs]
        if len(tests) == 1:
            return tests[0]
        return Value(" and ".join(one.at(COMPARE) for one in tests), BOOL, AND)

    def compared(self, node: ast.expr, op: ast.cmpop, left: Value, right: Value) -> Value:
        kinds = {left.type.kind, right.type.kind}
        if isinstance(op, ast.In | ast.NotIn):
            test = self.contains(node, left, right)
            return negated(test) if isinstance(op, ast.NotIn) else test
        if isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
            is_not = isinstance(op, ast.IsNot | ast.NotEq)
            if isinstance(op, ast.Is | ast.IsNot) or kinds <= _SCALARS:
                sign = "~=" if is_not else "=="
                return Value(f"{left.at(CONCAT)} {sign} {right.at(CONCAT)}", BOOL, COMPARE)
            if left.type.record is not None and not issubclass(left.type.record, tuple):
                test = Value(self.python("same", f"{left.text}, {right.text}"), BOOL)
            else:
                test = self.comparison(node, "same", left, right)
            return negated(test) if is_not else test
        sign = _COMPARED[type(op)]
        if kinds <= _NUMBERS:
            return Value(f"{left.at(CONCAT)} {sign} {right.at(CONCAT)}", BOOL, COMPARE)
        self.refuse("str" in kinds, node, "texts have another order in Lua")
        left, right = (right, left) if sign in {">", "<="} else (left, right)
        test = self.comparison(node, "less", left, right)
        return negated(test) if "=" in sign else test

    def contains(self, node: ast.expr, left: Value, right: Value) -> Value:
        kind = right.type.kind
        if kind in {"dict", "set"}:
            text = f"{right.at(ATOM)}[{self.key(node).text}]"
        elif kind == "str":
            text = f"string.find({right.text}, {left.text}, 1, true)"
        elif kind == "list" and left.type.kind in _SCALARS:
            text = self.python("find", f"{right.text}, {left.text}")
        else:
            raise self.unknown(node, f"a look into a {kind}")
        return Value(f"{text} ~= nil", BOOL, COMPARE)

    def comparison(self, node: ast.AST, what: str, left: Value, right: Value) -> Value:
        self.refuse(left.type.optional or right.type.optional, node, "what may be None")
        return Value(f"{self.comparer(node, what, left.type)}({left.text}, {right.text})", BOOL)

    def comparer(self, node: ast.AST, what: str, kind: Type) -> str:
        """A function that compares two tuples; it is written once, at the head of the module."""
        places = [*self.leaves(node, kind)]
        name = f"_{what}_" + (kind.record.__name__.lower() if kind.record else f"of_{len(places)}")
        lines = [f"local function {name}(a, b)"]
        if what == "same":
            lines.append(f"  return {' and '.join(f'a{at} == b{at}' for at in places)}")
        for at in places[:-1] if what == "less" else []:
            lines += [f"  if a{at} ~= b{at} then", f"    return a{at} < b{at}", "  end"]
        lines += [f"  return a{places[-1]} < b{places[-1]}"] * (what == "less")
        lines.append("end")
        known = self.comparers.setdefault(name, lines)
        self.refuse(known != lines, node, "two tuples of as many parts")
        return name

    def leaves(self, node: ast.AST, kind: Type) -> Iterator[str]:
        """The places of a tuple's parts, and of their parts, in the order of comparison."""
        for at, one in self.parts(node, kind):
            is_plain = one.kind in _SCALARS and not one.optional
            yield from [at] if is_plain else (at + inner for inner in self.leaves(node, one))

    # Expressions

    def value(self, node: ast.expr) -> Value:
        return self.dispatch("of", node)(node)

    def of_constant(self, node: ast.Constant) -> Value:
        return self.literal(node, node.value)

    def literal(self, node: ast.AST, value: object) -> Value:  # noqa: PLR0911  (kind after kind)
        value = value.value if isinstance(value, Enum) else value
        if value is None:
            return Value("nil", NONE)
        if isinstance(value, bool):
            return Value("true" if value else "false", BOOL)
        if isinstance(value, int | float):
            return Value(repr(value), INT if isinstance(value, int) else FLOAT)
        if isinstance(value, str):
            return Value(quoted(value), STR)
        if isinstance(value, bytes):
            return Value(quoted(value.decode()), BYTES)
        if isinstance(value, frozenset) and value:
            names = sorted(str(one) for one in value)
            return Value(
                f"{{ {', '.join(f'{one} = true' for one in names)} }}", Type("set", (STR,))
            )
        if isinstance(value, dict) and value:
            pairs = {str(key): self.literal(node, one) for key, one in value.items()}
            text = braced([f"{key} = {one.text}" for key, one in pairs.items()])
            return Value(text, Type("dict", (STR, next(iter(pairs.values())).type)))
        if value in ({}, (), [], frozenset()):
            return Value("{}", Type("list", (NONE,)))
        raise self.unknown(node, "a constant")

    def of_name(self, node: ast.Name) -> Value:
        if node.id in self.types:
            return Value(lua_name(node.id), self.types[node.id])
        self.refuse(node.id not in self.module.values, node, "a name")
        value = self.literal(node, self.module.values[node.id])
        text = f"{self.rule.table}.{node.id}" if node.id in self.rule.names else node.id
        self.constants[text] = value.text
        return Value(text, value.type)

    def of_attribute(self, node: ast.Attribute) -> Value:
        if isinstance(node.value, ast.Name) and node.value.id not in self.types:
            kind = self.module.values.get(node.value.id)
            self.refuse(not isinstance(kind, type), node, "an attribute")
            return self.literal(node, getattr(kind, node.attr))
        return self.field(node, self.value(node.value))

    def field(self, node: ast.Attribute, owner: Value) -> Value:
        record = owner.type.record
        if record is None:
            raise self.unknown(node, f"an attribute of a {owner.type.kind}")
        fields = source.fields_of(record)
        if node.attr in fields:
            kind = self.types.get(ast.unparse(node), fields[node.attr][0])
            return Value(f"{owner.at(ATOM)}.{lua_name(node.attr)}", kind)
        found = vars(record).get(node.attr)
        if self.by_hand.get(f"{record.__module__}.{record.__qualname__}.{node.attr}") == ".":
            return Value(f"{owner.at(ATOM)}.{node.attr}", source.returned_by(found.fget))
        if self.is_single(owner.type) and isinstance(found, property):
            kind = source.returned_by(found.fget)
            return Value("" if self.is_single(kind) else self.hand(found.fget), kind)
        if not isinstance(found, property):
            raise self.unknown(node, f"no such field of {record.__name__}")
        return Value(f"{self.name(node, found)}({owner.text})", source.returned_by(found.fget))

    def of_dict(self, node: ast.Dict) -> Value:
        self.refuse(node.keys, node, "a dict that is not empty")
        return Value("{}", Type("dict", (NONE, NONE)))

    def of_tuple(self, node: ast.Tuple | ast.List) -> Value:
        if any(isinstance(one, ast.Starred) for one in node.elts):
            pairs = ((one, isinstance(one, ast.Starred)) for one in node.elts)
            parts = self.values([one.value if many else ast.List([one]) for one, many in pairs])
            text = self.python("joined", ", ".join(one.text for one in parts))
            return Value(text, Type("list", (self.item(node, parts[-1]),)))
        values = self.values(node.elts)
        if not values:
            return Value("{}", Type("list", (NONE,)))
        for one in values:
            self.some(node, one.type)
        text = f"{{ {', '.join(one.text for one in values)} }}"
        if isinstance(node, ast.List):
            return Value(text, Type("list", (values[0].type,)))
        return Value(text, Type("tuple", tuple(one.type for one in values)))

    of_list = of_tuple

    def of_subscript(self, node: ast.Subscript) -> Value:
        owner = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            self.refuse("-" in ast.unparse(node.slice) or node.slice.step, node, "such a slice")
            lower = _shifted(self.value(node.slice.lower), 1) if node.slice.lower else "1"
            upper = f", {self.value(node.slice.upper).text}" if node.slice.upper else ""
            text = self.python("slice", f"{owner.text}, {lower}{upper}")
            return Value(text, Type("list", (self.item(node, owner),)))
        if owner.type.kind == "dict":
            return Value(f"{owner.at(ATOM)}[{self.key(node.slice).text}]", owner.type.parts[1])
        place = self.value(node.slice)
        if owner.type.kind == "tuple" and place.text.isdigit():
            fixed = int(place.text)
            return Value(f"{owner.at(ATOM)}[{fixed + 1}]", owner.type.parts[fixed])
        if place.text == "-1":
            owner = self.kept(owner, "list")
            return Value(f"{owner.text}[#{owner.text}]", self.item(node, owner))
        self.refuse("-" in place.text[:1], node, "a place from the end")
        return Value(f"{owner.at(ATOM)}[{_shifted(place, 1)}]", self.item(node, owner))

    def key(self, node: ast.expr) -> Value:
        """A key of a dict or set; a tuple is joined to one text."""
        value = self.value(node)
        parts = value.type.parts if isinstance(node, ast.Tuple) else (value.type,)
        self.refuse(not {*parts} <= {INT, STR}, node, "a key")
        if not isinstance(node, ast.Tuple):
            return value
        texts = [one.at(ADD) for one in self.values(node.elts)]
        return Value(" .. '\\0' .. ".join(texts), STR, CONCAT)

    def of_binop(self, node: ast.BinOp) -> Value:
        return self.arithmetic(node, node.op, *self.values([node.left, node.right]))

    def arithmetic(self, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
        kinds = {left.type.kind, right.type.kind}
        if kinds == {"set"} and isinstance(op, ast.Sub):
            return Value(self.python("minus", f"{left.text}, {right.text}"), left.type)
        kind = FLOAT if "float" in kinds or isinstance(op, ast.Div) else INT
        if isinstance(op, ast.Pow) and left.type == FLOAT:
            return Value(f"{left.at(ATOM)} ^ {right.at(ATOM)}", FLOAT, UNARY)
        if isinstance(op, ast.FloorDiv) and kinds <= _NUMBERS:
            return Value(f"math.floor({left.at(MULTIPLY)} / {right.at(UNARY)})", kind)
        if type(op) not in _ARITHMETIC or not kinds <= _NUMBERS:
            raise self.unknown(node, f"this operator between {' and '.join(sorted(kinds))}")
        sign, binds = _ARITHMETIC[type(op)]
        if isinstance(op, ast.Add) and right.text.isdigit() and left.text.endswith(" - 1"):
            return Value(_shifted(left, int(right.text)), kind, binds)
        return Value(f"{left.at(binds)} {sign} {right.at(binds + 1)}", kind, binds)

    def of_unaryop(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return self.condition(node)
        self.refuse(not isinstance(node.op, ast.USub), node, "an operator")
        value = self.value(node.operand)
        return Value(f"-{value.at(UNARY)}", value.type, UNARY)

    def of_joinedstr(self, node: ast.JoinedStr) -> Value:
        parts: list[str] = []
        for one in node.values:
            if not isinstance(one, ast.FormattedValue):
                parts.append(self.value(one).text)
                continue
            value = self.value(one.value)
            is_plain = one.format_spec is None and value.type in {STR, INT}
            self.refuse(not is_plain, node, "a format")
            if one.conversion == ord("r"):
                parts.append(self.given("base.run", f"Run.quoted({value.text})"))
            else:
                parts.append(value.at(CONCAT) if value.type == STR else self.digits(value))
        return Value(" .. ".join(parts), STR, CONCAT)

    def given(self, file: str, text: str) -> str:
        self.needs.add(file)
        return text

    def digits(self, value: Value) -> str:
        return self.given("base.codec", f"Codec.digits({value.text})")

    # Comprehensions, and what goes through all elements

    def of_listcomp(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp
    ) -> Value:
        stem = {ast.SetComp: "set", ast.DictComp: "dict"}.get(type(node), "list")
        name, counter, first = self.temporary(stem), "_", node.generators[0]
        self.write(f"local {name} = {{}}")
        is_whole = not first.ifs and len(node.generators) == 1
        if stem == "list" and is_whole and not isinstance(first.iter, ast.Call):
            counter = self.temporary("at")
        with self.each(node.generators, any_order=stem != "list", counter=counter):
            if isinstance(node, ast.DictComp):
                value = self.value(node.value)
                place, parts = self.key(node.key).text, (self.key(node.key).type, value.type)
            elif isinstance(node, ast.SetComp):
                key, value = self.key(node.elt), Value("true", BOOL)
                place, parts = key.text, (key.type,)
            else:
                value = self.value(node.elt)
                place, parts = (f"#{name} + 1" if counter == "_" else counter), (value.type,)
            self.write(f"{name}[{place}] = {value.text}")
        self.some(node, value.type)
        return Value(name, Type(stem, parts))

    of_generatorexp = of_listcomp
    of_setcomp = of_listcomp
    of_dictcomp = of_listcomp

    @contextmanager
    def each(
        self,
        generators: Sequence[ast.comprehension],
        *,
        any_order: bool = False,
        counter: str = "_",
    ) -> Iterator[None]:
        """The loops of a comprehension, whose names are its own."""
        self.refuse(len(generators) > 1, generators[0], "loops within loops")
        one = generators[0]
        known = dict(self.types)
        with self.loop(one.target, one.iter, any_order=any_order, counter=counter):
            depth = self.depth
            for test in one.ifs:
                self.write(f"if {self.condition(test).text} then")
                self.depth += 1
            yield
            while self.depth > depth:
                self.depth -= 1
                self.write("end")
        self.types = known

    def call_any(self, node: ast.Call) -> Value:
        over, is_any = node.args[0], _called(node) == "any"
        self.refuse(not isinstance(over, ast.GeneratorExp), node, "another thing than a generator")
        name = self.temporary("is_any" if is_any else "are_all")
        self.write(f"local {name} = {'false' if is_any else 'true'}")
        with self.each(over.generators, any_order=True):
            test = self.condition(over.elt)
            with self.inside(f"if {(test if is_any else negated(test)).text} then"):
                self.write(f"{name} = {'true' if is_any else 'false'}", "break")
        return Value(name, BOOL)

    call_all = call_any

    def call_min(self, node: ast.Call) -> Value:
        """`min`, `max` and `sum`: of their arguments, or of all that one goes through."""
        word, over = _called(node), node.args[0]
        given = {one.arg: one.value for one in node.keywords}
        if len(node.args) > 1:
            values = self.values(node.args)
            known = not given and all(one.type.kind in _NUMBERS for one in values)
            self.refuse(not known, node, f"the {word} of these")
            kind = FLOAT if FLOAT in {one.type for one in values} else INT
            return Value(f"math.{word}({', '.join(one.text for one in values)})", kind)
        key = given.get("key")
        best = self.temporary({"sum": "sum", "min": "least", "max": "most"}[word])
        size = self.temporary("size") if key else best
        self.write(f"local {best}{' = 0' if word == 'sum' else f', {size}' if key else ''}")
        if isinstance(over, ast.GeneratorExp):
            generators, element = over.generators, over.elt
        else:
            name = key.args.args[0].arg if isinstance(key, ast.Lambda) else self.temporary("one")
            generators = [ast.comprehension(ast.Name(name, ast.Store()), over, [], 0)]
            element = ast.copy_location(ast.Name(name, ast.Load()), over)
        # Python takes the first of equals, so that with a key the order counts.
        with self.each(generators, any_order=key is None):
            value = self.value(element)
            measure = self.value(key.body) if isinstance(key, ast.Lambda) else value
            self.refuse(measure.type not in {INT, FLOAT}, node, f"the {word} of these")
            if word == "sum":
                self.write(f"{best} = {best} + {measure.at(MULTIPLY)}")
            else:
                measure = self.kept(measure, "measure")
                sign = "<" if word == "min" else ">"
                with self.inside(f"if {best} == nil or {measure.text} {sign} {size} then"):
                    both = (f"{best}, {size}", f"{value.text}, {measure.text}")
                    self.write(" = ".join(both if key else (best, measure.text)))
        kind = value.type if key else measure.type
        if "default" not in given:
            return Value(best, kind)
        default = self.value(given["default"])
        self.refuse(default.type == NONE, node, "None for nothing")
        with self.inside(f"if {best} == nil then"):
            self.write(f"{best} = {default.text}")
        return Value(best, replace(kind, optional=default.type.optional))

    call_max = call_min
    call_sum = call_min

    # Calls

    def of_call(self, node: ast.Call) -> Value:
        target = node.func
        if isinstance(target, ast.Attribute):
            return self.method(node, target)
        self.refuse(not isinstance(target, ast.Name), node, "a call")
        if target.id in self.types:
            kind = self.types[target.id].parts[0]
            return Value(f"{lua_name(target.id)}({self.texts(node.args)})", kind)
        found = self.module.values.get(target.id)
        if (getattr(found, "__module__", None) or "").startswith("headway."):
            return self.made(node, found) if isinstance(found, type) else self.invoked(node, found)
        return self.library(node, f"call_{target.id}")

    def library(self, node: ast.Call, name: str, *given: Value) -> Value:
        """A function of Python itself."""
        method = getattr(self, name, None)
        self.refuse(method is None, node, "a function that the translator does not know")
        return method(node, *given)

    def method(self, node: ast.Call, target: ast.Attribute) -> Value:
        name = ast.unparse(target.value)
        if name in {"heapq", "dict"} and name not in self.types:
            return self.library(node, f"{name}_{target.attr}")
        owner = self.value(target.value)
        record = owner.type.record
        if record is None:
            return self.library(node, f"{owner.type.kind}_{target.attr}", owner)
        fields = source.fields_of(record)
        if target.attr in fields:
            text = f"{owner.at(ATOM)}.{lua_name(target.attr)}({self.texts(node.args)})"
            return Value(text, fields[target.attr][0].parts[0])
        found = vars(record).get(target.attr)
        self.refuse(found is None, node, f"{record.__name__} has no method {target.attr}")
        return self.invoked(node, found, *([owner.text] * self.is_passed(owner.type, found)))

    def invoked(self, node: ast.Call, function: Any, *first: str) -> Value:
        """A call of a translated function, its arguments by place."""
        place = self.by_hand.get(f"{function.__module__}.{function.__qualname__}")
        if place == "-":
            return Value("", NONE)
        if place == "=":
            return self.value(node.args[0])
        name = self.name(node, function)
        is_hand = "." in name and name.split(".")[0] not in {
            one.table for one in self.rules.values()
        }
        given = {str(one.arg): one.value for one in node.keywords}
        parameters = source.parameters_of(function)
        given |= dict(zip((one for one, _, _ in parameters), node.args, strict=False))
        self.refuse({*given} - {one for one, _, _ in parameters}, node, "other arguments")
        values = dict(zip(given, self.values([*given.values()]), strict=True))
        texts = [*first]
        for one, kind, default in parameters:
            if self.is_single(kind):
                continue
            self.refuse(one not in values and default is NOT_GIVEN, node, f"no {one} is given")
            if one in values:
                texts.append(values[one].text)
            else:
                # What is written by hand knows its own defaults.
                texts.append("nil" if is_hand else self.literal(node, default).text)
        while texts and texts[-1] == "nil":
            texts.pop()
        return Value(f"{name}({', '.join(texts)})", source.returned_by(function))

    def made(self, node: ast.Call, record: type[Any]) -> Value:
        """A record: a table with its fields by name; None is left out."""
        kind = Type("record", record=record)
        fields = source.fields_of(record)
        given = {str(one.arg): one.value for one in node.keywords}
        given |= dict(zip(fields, node.args, strict=False))
        self.refuse({*given} - {*fields}, node, "other arguments")
        values = dict(zip(given, self.values([*given.values()]), strict=True))
        texts: list[str] = []
        for name, (_, default) in fields.items():
            self.refuse(name not in values and default is NOT_GIVEN, node, f"no {name} is given")
            text = values[name].text if name in values else self.literal(node, default).text
            texts += [f"{lua_name(name)} = {text}"] if text != "nil" else []
        return Value(braced(texts), kind)

    def call_isinstance(self, node: ast.Call) -> Value:
        """A record that is sent has the name of its class."""
        value = self.value(node.args[0])
        kinds = [one for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)]
        tests = [f"{value.at(ATOM)}.type == '{one.id}'" for one in kinds]
        return Value(" or ".join(tests), BOOL, OR)

    def call_len(self, node: ast.Call) -> Value:
        value = self.value(node.args[0])
        is_known = value.type.kind == "list" or replace(value.type, optional=False) == BYTES
        self.refuse(not is_known, node, "the length of this")
        return Value(f"#{value.at(UNARY)}", INT, UNARY)

    def call_str(self, node: ast.Call) -> Value:
        value = self.value(node.args[0])
        self.refuse(value.type not in {STR, INT}, node, "the text of this")
        return value if value.type == STR else Value(self.digits(value), STR)

    def call_int(self, node: ast.Call) -> Value:
        value = self.value(node.args[0])
        self.refuse(value.type not in {INT, FLOAT}, node, "the whole of this")
        return Value(f"math.floor({value.text})", INT)

    def call_float(self, node: ast.Call) -> Value:
        return self.value(node.args[0])._replace(type=FLOAT)

    def call_abs(self, node: ast.Call) -> Value:
        return Value(f"math.abs({self.texts(node.args)})", INT)

    def call_bool(self, node: ast.Call) -> Value:
        return self.condition(node.args[0])

    def call_set(self, node: ast.Call) -> Value:
        if not node.args:
            return Value("{}", Type("set", (NONE,)))
        name = self.temporary("one")
        over = ast.comprehension(ast.Name(name, ast.Store()), node.args[0], [], 0)
        return self.of_setcomp(ast.SetComp(ast.Name(name, ast.Load()), [over]))

    def call_tuple(self, node: ast.Call) -> Value:
        return self.value(node.args[0])

    def call_replace(self, node: ast.Call) -> Value:
        value = self.value(node.args[0])
        changes = ", ".join(f"{one.arg} = {self.value(one.value).text}" for one in node.keywords)
        return Value(self.python("replace", f"{value.text}, {{ {changes} }}"), value.type)

    def call_bisect_right(self, node: ast.Call) -> Value:
        key = node.keywords[0].value
        self.refuse(_called(key) != "itemgetter", node, "a key that is no itemgetter")
        place = _shifted(self.value(key.args[0]), 1)
        return Value(self.python("bisect_right", f"{self.texts(node.args)}, {place}"), INT)

    def heapq_heappush(self, node: ast.Call) -> Value:
        values = self.values(node.args)
        item = self.item(node, values[0])
        texts = [*(one.text for one in values), self.comparer(node, "less", item)]
        return Value(self.python(_called(node), ", ".join(texts)), item)

    heapq_heapify = heapq_heappush
    heapq_heappop = heapq_heappush

    def dict_fromkeys(self, node: ast.Call) -> Value:
        value = self.value(node.args[0])
        return Value(self.python("unique", value.text), value.type)

    def list_append(self, node: ast.Call, owner: Value) -> Value:
        if "." in owner.text:
            name = self.temporary("list")
            self.write(f"local {name} = {owner.text}")
            owner = Value(name, owner.type)
        value = self.value(node.args[0])
        self.some(node, owner.type.parts[0], value.type)
        return Value(f"{owner.text}[#{owner.text} + 1] = {value.text}", NONE)

    def list_index(self, node: ast.Call, owner: Value) -> Value:
        found = self.python("find", f"{owner.text}, {self.texts(node.args)}")
        return Value(f"{found} - 1", INT, ADD)

    def set_add(self, node: ast.Call, owner: Value) -> Value:
        return Value(f"{owner.text}[{self.key(node.args[0]).text}] = true", NONE)

    def dict_get(self, node: ast.Call, owner: Value) -> Value:
        place, kind = f"{owner.at(ATOM)}[{self.key(node.args[0]).text}]", owner.type.parts[1]
        self.refuse(kind.kind == "bool", node, "a get of what may be false")
        if len(node.args) == 1:
            return Value(place, replace(kind, optional=True))
        return Value(f"{place} or {self.value(node.args[1]).at(AND)}", kind, OR)

    def dict_pop(self, node: ast.Call, owner: Value) -> Value:
        place = f"{owner.at(ATOM)}[{self.key(node.args[0]).text}]"
        name = self.temporary("taken")
        self.write(f"local {name} = {place}", f"{place} = nil")
        return Value(name, owner.type.parts[1])

    def str_replace(self, node: ast.Call, owner: Value) -> Value:
        return Value(self.python("replace_text", f"{owner.text}, {self.texts(node.args)}"), STR)


EMPTY = "''"


def braced(parts: Sequence[str]) -> str:
    """A table; a long one has a line for each part."""
    line = f"{{ {', '.join(parts)} }}"
    if len(line) < 80:
        return line
    text = ",\n".join(parts).replace("\n", "\n  ")
    return f"{{\n  {text},\n}}"


def lua_name(name: str) -> str:
    return f"{name}_" if name in _RESERVED else name


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def negated(test: Value) -> Value:
    """The opposite of a condition, written as one would."""
    if test.binds == COMPARE:
        for sign, other in ((" ~= ", " == "), (" == ", " ~= ")):
            left, found, right = test.text.rpartition(sign)
            if found and "(" not in right:
                return Value(f"{left}{other}{right}", BOOL, COMPARE)
        if test.text.startswith("#") and test.text.endswith(" > 0"):
            return Value(f"{test.text.removesuffix(' > 0')} == 0", BOOL, COMPARE)
    return Value(f"not {test.at(UNARY)}", BOOL, UNARY)


def _shifted(value: Value, by: int) -> str:
    """A number with one added or taken away, as places of Python, from 0, and of Lua, from 1."""
    if value.text.isdigit():
        return str(int(value.text) + by)
    undone = f" {'-' if by > 0 else '+'} {abs(by)}"
    if value.text.endswith(undone):
        return value.text.removesuffix(undone)
    return f"{value.at(ADD)} {'+' if by > 0 else '-'} {abs(by)}"


def _called(node: ast.AST | None) -> str:
    """The name of what is called; "" for what is no call."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)


def _first_part(node: ast.AST) -> ast.expr | None:
    """The end of a slice that begins with the first element."""
    part = node.slice if isinstance(node, ast.Subscript) else None
    is_first = isinstance(part, ast.Slice) and part.lower is part.step is None
    return part.upper if is_first and "-" not in ast.unparse(part) else None


def _continues(body: Sequence[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Continue)


def _renamed(line: str, old: str, new: str) -> str:
    """A line that fills a variable, filling another."""
    head = line.lstrip()
    for start in (f"local {old} = ", f"{old}[", f"{old} = "):
        if head == f"local {old}" or head.startswith(start):
            return line.replace(old, new, 1).replace(f"#{old} + 1", f"#{new} + 1", 1)
    return line


def _commented(node: ast.Module | ast.FunctionDef) -> list[str]:
    """A docstring as a comment, without its sections: these speak of Python's types."""
    text, _, _ = (ast.get_docstring(node) or "").partition("\n\nArgs:")
    text, _, _ = text.partition("\n\nReturns:")
    text, _, _ = text.partition("\n\nRaises:")
    return [f"-- {line}".rstrip() for line in text.splitlines()]
