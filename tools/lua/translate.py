"""Translate a Python module to a Lua 5.1 module.

A `Translator` translates the functions that other Lua uses, then those of the same module that they
call, until none is missing; `text` puts them below the constants that they use.

- `statement`, `value` and `library` contain a case for each supported construct of Python. An
  expression becomes a `Value`: its text, its type and its precedence. A construct without a case is
  an error with its file and line, and so is one that `refuse` rejects.
- An expression may need statements before it, such as a loop for `any(...)`: they are written
  first, and the expression is then the name of their result. `values` preserves Python's order of
  evaluation if one of several expressions has such statements.
- Types come from annotations and decide the translation: `if jobs` is `#jobs > 0` for a list, `jobs
  ~= ''` for text, and `jobs` for a record that may be None. Pyright has checked them, so None is
  not checked again where Python would fail on it.
- A record is a table with its fields by name, a tuple or list is a list, a set is a table of true,
  None is nil: so None in a list is refused. Indexes start at 1.
- A variable belongs to the block in which it is first assigned, as in Lua: one that is used after
  the block needs a value before it.
- Handwritten Lua is called (see `names`). A table of the ledger is a Lua module, so it is not
  passed on.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from textwrap import wrap
from types import FunctionType
from typing import Any

from tools.lua import source
from tools.lua.lua import Bind, Lines, Value, braced, lua_name, negated, quoted, shifted
from tools.lua.names import Names, table_of
from tools.lua.source import BOOL, BYTES, FLOAT, INT, NONE, NOT_GIVEN, STR, Type

WRITTEN = "-- Written by `make lua` from MODULE: change that."
_ARITHMETIC = {ast.Add: ("+", Bind.ADD), ast.Sub: ("-", Bind.ADD)}
_ARITHMETIC |= {
    ast.Mult: ("*", Bind.MULTIPLY),
    ast.Div: ("/", Bind.MULTIPLY),
    ast.Mod: ("%", Bind.MULTIPLY),
}
_EQUAL = {ast.Eq: "==", ast.NotEq: "~=", ast.Is: "==", ast.IsNot: "~="}
_ORDER = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_SCALARS = {"int", "float", "str", "bool", "none"}
_NUMBERS = {"int", "float"}
_COMPREHENSIONS = {ast.SetComp: "set", ast.DictComp: "dict"}
_CALLS: dict[str, tuple[str, Callable[[Type], Type]]] = {
    "abs": ("math.abs({})", lambda of: of),
    "float": ("({})", lambda _: FLOAT),
    "int": ("math.floor({})", lambda _: INT),
    "tuple": ("{}", lambda of: of),
    "dict.fromkeys": ("Python.unique({})", lambda of: of),
    "dict.get": ("{}[{}]", lambda of: replace(of.parts[1], optional=True)),
    "dict.pop": ("Python.pop({}, {})", lambda of: of.parts[1]),
    "dict.values": ("Python.values({})", lambda of: Type("values", of.parts[1:])),
    "heapq.heapify": ("Python.heapify({})", lambda _: NONE),
    "heapq.heappop": ("Python.heappop({})", lambda of: of.parts[0]),
    "heapq.heappush": ("Python.heappush({}, {})", lambda _: NONE),
    "list.append": ("table.insert({}, {})", lambda _: NONE),
    "list.index": ("(Python.find({}, {}) - 1)", lambda _: INT),
    "set.add": ("{}[{}] = true", lambda _: NONE),
    "str.replace": ("Python.replace_text({}, {}, {})", lambda _: STR),
}
"""Calls that are one expression in Lua, with the result's type by that of the first operand."""


class Translator(Lines):
    """The translator of one module."""

    def __init__(self, names: Names, module: str, used: Iterable[str]) -> None:
        super().__init__()
        self.names = names
        self.module = source.read(module)
        self.table = table_of(names.rules[module])
        self.asked = sorted(used)
        self.constants: dict[str, str] = {}
        self.wanted: dict[str, tuple[ast.FunctionDef, Any]] = {}
        self.types: dict[str, Type] = {}  # Types of the variables in this block.

    # The module

    def text(self) -> str:
        """Return the text of the file."""
        for name in self.asked:
            self.want(name)
        bodies: dict[str, list[str]] = {}
        while missing := [name for name in self.wanted if name not in bodies]:
            bodies[missing[0]] = self.function(missing[0], *self.wanted[missing[0]])
        constants = [f"{name} = {text}" for name, text in sorted(self.constants.items())]
        # A table of functions must follow the functions.
        last = [one for one in constants if f"= {self.table}." in one]
        first = [one if "." in one.split()[0] else f"local {one}" for one in constants]
        first = [one for one in first if one not in last]
        in_order = sorted(self.wanted, key=lambda name: self.wanted[name][0].lineno)
        parts = [first, *(bodies[name] for name in in_order), last]
        lines = [line for part in parts if part for line in [*part, ""]]
        head = [WRITTEN.replace("MODULE", self.module.name)]
        head += _commented(self.module.tree)
        head += [f"-- needs: {one}" for one in wrap(self.names.mentioned(lines, self.table), 90)]
        return "\n".join([*head, "", f"local {self.table} = {{}}", "", *lines])

    def want(self, name: str) -> None:
        """Request a function or a constant that other Lua uses by this name."""
        functions, values = self.module.functions, self.module.values
        found = [one for one in functions if lua_name(one.split(".")[-1].strip("_")) == name]
        for one in found:
            owner, _, function = one.rpartition(".")
            self.name(functions[one], vars(values[owner])[function] if owner else values[one])
        if not found:
            value = values.get(f"_{name}", values.get(name))
            self.refuse(value is None, self.module.tree, f"no {name}")
            self.constants[f"{self.table}.{name}"] = self.literal(self.module.tree, value).text

    def name(self, node: ast.AST, function: Any) -> str:
        """Return the Lua name of a function or method; request it if it belongs to this module."""
        function = getattr(function, "fget", function)
        if text := self.names.by_hand(function):
            return text
        text = self.names.translated(function)
        self.refuse(not text, node, f"{function.__qualname__} is neither translated nor by hand")
        if function.__module__ == self.module.name:
            tree = self.module.functions[function.__qualname__]
            known, _ = self.wanted.setdefault(text, (tree, function))
            self.refuse(known is not tree, node, f"two functions are {text}")
        return text

    def function(self, name: str, node: ast.FunctionDef, function: Any) -> list[str]:
        marks = [ast.unparse(one) for one in node.decorator_list]
        self.refuse(marks not in ([], ["property"]), node, "a decorator")
        self.types = {one: kind for one, (kind, _) in source.parameters_of(function).items()}
        names = [lua_name(one) for one, kind in self.types.items() if not self.is_single(kind)]
        self.used = {*names, *source.names_in(node)}
        if owner := function.__qualname__.rpartition(".")[0]:
            self.types["self"] = Type("record", record=self.module.values[owner])
            names.insert(0, "self")
        with self.captured() as lines:
            self.write(*_commented(node))
            with self.inside(f"function {name}({', '.join(names)})"):
                self.block(node.body)
        return lines

    def is_single(self, kind: Type) -> bool:
        return self.names.is_single(kind.record)

    def refuse(self, is_unknown: object, node: ast.AST, what: str) -> None:
        if is_unknown:
            raise self.module.unsupported(node, what)

    # Statements

    def block(self, body: Sequence[ast.stmt]) -> None:
        for place, node in enumerate(body):
            first = node.lineno
            while first - 1 in self.module.comments:
                first -= 1
            self.write(*(f"-- {self.module.comments[one]}" for one in range(first, node.lineno)))
            match node:
                case ast.If(test=test, body=[*inner, ast.Continue()], orelse=[]):
                    # Lua 5.1 has no `continue`: the following statements go into the else branch.
                    self.branch(test, inner, body[place + 1 :])
                    return
                case _:
                    self.statement(node)

    @contextmanager
    def scope(self, head: str, end: str = "end") -> Iterator[None]:
        """Write a block; its variables are unknown after it."""
        known = dict(self.types)
        with self.inside(head, end):
            yield
        self.types = known

    def statement(self, node: ast.stmt) -> None:  # noqa: C901, PLR0912  (case after case)
        match node:
            case ast.Pass() | ast.Assert() | ast.Expr(value=ast.Constant()):
                pass
            case ast.Break():
                self.write("break")
            case ast.Return(value=given):
                self.write(f"return {self.value(given).text}" if given else "return")
            case ast.Raise(
                exc=ast.Call(func=ast.Name(id=name), args=[_], keywords=[] | [_]) as call
            ):
                words = self.texts([*call.args, *(one.value for one in call.keywords)])
                self.write(f"Run.refuse({quoted(name)}, {words})")
            case ast.Expr(value=ast.Call() as call):
                self.write(self.value(call).text)
            case ast.Assign(targets=[first, *others], value=given):
                self.assign(first, given)
                for target in others:
                    # Evaluate a call only once.
                    self.assign(target, given if isinstance(given, ast.Constant) else first)
            case ast.AnnAssign(target=target, annotation=hint, value=ast.expr() as given):
                self.assign(target, given, self.module.annotation(hint))
            case ast.AugAssign(target=ast.Name() | ast.Attribute() as target, op=op, value=given):
                place = self.value(target)
                self.refuse("(" in place.text, node, "a call that would be made twice")
                result = self.arithmetic(node, op, place, self.value(given))
                self.write(f"{place.text} = {result.text}")
            case ast.If(test=test, body=body, orelse=orelse):
                self.branch(test, body, orelse)
            case ast.While(test=test, body=body, orelse=[]):
                with self.captured() as lines:
                    head = f"while {self.condition(test).text} do"
                self.refuse(lines, node, "a loop in the condition")
                with self.scope(head):
                    self.block(body)
            case ast.For(target=target, iter=over, body=body, orelse=[]):
                with self.loop(target, over):
                    self.block(body)
            case _:
                raise self.module.unsupported(node, "what the translator does not know")

    def branch(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        condition = self.condition(test)
        if not body:
            condition, body, orelse = negated(condition), orelse, []
        with self.scope(f"if {condition.text} then", ""):
            self.block(body)
        while len(orelse) == 1 and isinstance(inner := orelse[0], ast.If):
            with self.captured() as lines:
                condition = self.condition(inner.test)
            if lines or isinstance(inner.body[-1], ast.Continue):
                break
            with self.scope(f"elseif {condition.text} then", ""):
                self.block(inner.body)
            orelse = inner.orelse
        if orelse:
            with self.scope("else", ""):
                self.block(orelse)
        self.write("end")

    def assign(self, target: ast.expr, given: ast.expr, kind: Type | None = None) -> None:
        match target, given:
            case ast.Tuple(elts=targets), ast.Tuple(elts=elements):
                self.unpack(targets, self.values(elements))
            case ast.Tuple(), _:
                self.take_apart(target, self.kept(self.value(given), "found"))
            case ast.Name(id=name), _:
                head = lua_name(name) if name in self.types else f"local {lua_name(name)}"
                is_own = name not in source.names_in(given)
                value = self.value(given, head if is_own else "")
                if value.text == "nil" and name not in self.types:
                    self.write(head)
                elif value.text and not (is_own and value.text == lua_name(name)):
                    self.write(f"{head} = {value.text}")
                self.bind(target, kind or value.type)
            case _:
                place, value = self.values([target, given])
                self.write(f"{place.text} = {value.text}")

    def take_apart(self, target: ast.Tuple, whole: Value) -> None:
        parts = self.parts(target, whole.type)
        self.unpack(target.elts, [Value(f"{whole.text}{at}", kind) for at, kind in parts])

    def unpack(self, targets: Sequence[ast.expr], values: Sequence[Value]) -> None:
        new = [one.id for one in targets if isinstance(one, ast.Name) and one.id not in self.types]
        local = "local " * (len(new) == len(targets))
        if new and not local:
            self.write(f"local {', '.join(map(lua_name, new))}")
        for one, value in zip(targets, values, strict=True):
            if isinstance(one, ast.Name):
                self.bind(one, value.type)
        places = self.texts(targets)
        self.write(f"{local}{places} = {', '.join(one.text for one in values)}")

    def bind(self, target: ast.Name, kind: Type) -> None:
        """Record a variable's type: the first value decides whether it may be None."""
        known = self.types.setdefault(target.id, kind)
        is_wrong = known == NONE or (kind.may_be_none and not known.optional)
        self.refuse(is_wrong, target, "give this variable an annotation")

    # Loops, of statements and of expressions

    @contextmanager
    def loop(
        self,
        target: ast.expr,
        over: ast.expr,
        ifs: Sequence[ast.expr] = (),
        *,
        counts: bool = False,
    ) -> Iterator[str]:
        """Write a loop; yield the variable that counts from 1, or "_" if there is none."""
        place = None
        match target, over:
            case ast.Tuple(elts=[place, item]), ast.Call(
                func=ast.Name(id="enumerate"), args=[whole]
            ):
                target, over, counts = item, whole, True
        items = self.value(over)
        is_set = items.type.kind == "set"
        kind = items.type.parts[0] if is_set else self.item(over, items)
        name = lua_name(target.id) if isinstance(target, ast.Name) else self.temporary("each")
        counter = self.temporary("at") if counts and not is_set else "_"
        head = f"{name} in pairs" if is_set else f"{counter}, {name} in ipairs"
        with self.scope(f"for {head}({items.text}) do"):
            if isinstance(place, ast.Name):
                self.unpack([place], [Value(f"{counter} - 1", INT)])
            if isinstance(target, ast.Tuple):
                self.take_apart(target, Value(name, kind))
            else:
                self.types[target.id] = kind
            for test in ifs:
                self.write(f"if {self.condition(test).text} then")
                self.depth += 1
            yield counter
            for _ in ifs:
                self.depth -= 1
                self.write("end")

    def parts(self, node: ast.AST, kind: Type) -> list[tuple[str, Type]]:
        """Return how to access the elements of a tuple, and their types."""
        if kind.kind == "tuple":
            return [(f"[{place}]", one) for place, one in enumerate(kind.parts, 1)]
        is_named = kind.record is not None and issubclass(kind.record, tuple)
        self.refuse(not is_named, node, f"taking a {kind.kind} apart")
        return [(f".{name}", one) for name, (one, _) in source.fields_of(kind.record).items()]

    def item(self, node: ast.AST, value: Value) -> Type:
        """Return the type of a list's elements, or of a homogeneous tuple's."""
        kind = value.type
        is_alike = kind.kind == "list" or (kind.kind == "tuple" and len({*kind.parts}) == 1)
        self.refuse(not is_alike, node, f"going through a {kind.kind}")
        return kind.parts[0]

    def comprehension(self, node: Any, into: str = "") -> Value:
        loop, stem = self.only_loop(node), _COMPREHENSIONS.get(type(node), "list")
        name, counts = self.fresh(stem, "{}", into=into), stem == "list" and not loop.ifs
        with self.loop(loop.target, loop.iter, loop.ifs, counts=counts) as counter:
            if stem == "list":
                value = self.value(node.elt)
                is_counted = counts and counter != "_"
                place, parts = counter if is_counted else f"#{name} + 1", (value.type,)
            else:
                key = self.key(node.elt if stem == "set" else node.key)
                value = Value("true", BOOL) if stem == "set" else self.value(node.value)
                place, parts = key.text, (key.type, value.type)
            self.write(f"{name}[{place}] = {value.text}")
        self.some(node, value)
        return Value(name, Type(stem, parts))

    def any_or_all(self, node: ast.GeneratorExp, into: str, *, is_any: bool) -> Value:
        loop = self.only_loop(node)
        first, other = ("false", "true") if is_any else ("true", "false")
        name = self.fresh("is_any" if is_any else "are_all", first, into=into)
        with self.loop(loop.target, loop.iter, loop.ifs):
            test = self.condition(node.elt)
            with self.inside(f"if {(test if is_any else negated(test)).text} then"):
                self.write(f"{name} = {other}", "break")
        return Value(name, BOOL)

    def folded(self, node: ast.Call, word: str, over: ast.expr) -> Value:
        """Translate `min`, `max` and `sum` of a generator or a list."""
        if not isinstance(over, ast.GeneratorExp):
            over = ast.GeneratorExp(*_all_of(over, self.temporary("one")))
        stem, first = ("total", "0") if word == "sum" else (f"{word}imum", "")
        loop, name = self.only_loop(over), self.fresh(stem, first)
        with self.loop(loop.target, loop.iter, loop.ifs):
            value = self.value(over.elt)
            self.refuse(value.type not in {INT, FLOAT}, node, f"the {word} of these")
            if word == "sum":
                self.write(f"{name} = {name} + {value.at(Bind.MULTIPLY)}")
            else:
                one = self.kept(value, "value").text
                self.write(f"{name} = {name} and math.{word}({name}, {one}) or {one}")
        return Value(name, value.type)

    def only_loop(self, node: Any) -> ast.comprehension:
        self.refuse(node.generators[1:], node, "loops within loops")
        return node.generators[0]

    # Expressions

    def value(self, node: ast.expr, into: str = "") -> Value:  # noqa: C901, PLR0911, PLR0912
        """Translate an expression.

        Args:
            into: where it is assigned ("local x" or "x"); an expression that needs a variable uses
                this one.
        """
        match node:
            case ast.Constant(value=value):
                return self.literal(node, value)
            case ast.Name(id=name) if name in self.types:
                kind = self.types[name]
                return Value("" if self.is_single(kind) else lua_name(name), kind)
            case ast.Name(id=name) if name in self.module.values:
                value = self.literal(node, self.module.values[name])
                text = f"{self.table}.{name}" if name in self.asked else name
                self.constants[text] = value.text
                return value._replace(text=text)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name not in self.types:
                return self.literal(node, getattr(self.module.values.get(name), attr, object))
            case ast.Attribute(value=owner, attr=attr):
                return self.field(node, self.value(owner), attr)
            case ast.Dict(keys=[]):
                return Value("{}", Type("dict", (NONE, NONE)))
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return self.list(node, elements)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                return self.comprehension(node, into)
            case ast.Subscript(value=owner, slice=place):
                return self.element(node, self.value(owner), place)
            case ast.BinOp(left=left, op=op, right=right):
                return self.arithmetic(node, op, *self.values([left, right]))
            case ast.UnaryOp(op=ast.Not()):
                return self.condition(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.value(operand)
                return Value(f"-{value.at(Bind.UNARY)}", value.type, Bind.UNARY)
            case ast.JoinedStr(values=values):
                texts = [self.value(one).at(Bind.CONCAT) for one in values]
                return Value(" .. ".join(texts), STR, Bind.CONCAT)
            case ast.FormattedValue(value=one, conversion=-1, format_spec=None):
                return self.as_text(node, self.value(one))
            case ast.FormattedValue(value=one, conversion=114, format_spec=None):
                return Value(f"Run.quoted({self.as_text(node, self.value(one)).text})", STR)
            case ast.BoolOp():
                return self.connected(node, self.value)
            case ast.IfExp():
                return self.choice(node, into)
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[right]):
                test = self.contains(node, left, right)
                return negated(test) if isinstance(op, ast.NotIn) else test
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.compared(node, op, *self.values([left, right]))
            case ast.Call():
                return self.call(node, into)
        raise self.module.unsupported(node, "what the translator does not know")

    def values(self, nodes: Sequence[ast.expr]) -> list[Value]:
        """Translate expressions in order, even if one needs statements before it."""
        found: list[Value] = []
        for node in nodes:
            with self.captured() as lines:
                value = self.value(node)
            found = [self.kept(one, "value") for one in found] if lines else found
            self.lines += lines
            found.append(value)
        return found

    def texts(self, nodes: Sequence[ast.expr]) -> str:
        return ", ".join(one.text for one in self.values(nodes))

    def kept(self, value: Value, stem: str) -> Value:
        """Store the value of a call in a variable, so that the call runs once and in order."""
        if "(" not in value.text and "{" not in value.text:
            return value
        return Value(self.fresh(stem, value.text), value.type)

    def some(self, node: ast.AST, *values: Value) -> None:
        """Refuse None in a list, tuple, set or dict, where Lua would have no element."""
        self.refuse(any(one.type.may_be_none for one in values), node, "None kept")

    def literal(self, node: ast.AST, value: object) -> Value:  # noqa: PLR0911  (kind after kind)
        match value.value if isinstance(value, Enum) else value:
            case None:
                return Value("nil", NONE)
            case bool(found):
                return Value(str(found).lower(), BOOL)
            case int(found) | float(found):
                return Value(repr(found), INT if isinstance(found, int) else FLOAT)
            case str(found):
                return Value(quoted(found), STR)
            case bytes(found):
                return Value(quoted(found.decode()), BYTES)
            case () | []:
                return Value("{}", Type("list", (NONE,)))
            case FunctionType() as found:
                return Value(self.name(node, found), Type("function"))
            case frozenset(found):
                return Value(
                    braced([f"{one} = true" for one in sorted(found)]), Type("set", (STR,))
                )
            case dict(found):
                pairs = {getattr(key, "__name__", str(key)): one for key, one in found.items()}
                values = {key: self.literal(node, one) for key, one in pairs.items()}
                text = braced([f"{key} = {one.text}" for key, one in values.items()])
                return Value(text, Type("dict", (STR, *{one.type for one in values.values()})))
        raise self.module.unsupported(node, "a constant")

    def field(self, node: ast.expr, owner: Value, name: str) -> Value:
        record = owner.type.record
        self.refuse(record is None, node, f"an attribute of a {owner.type.kind}")
        text, fields = f"{owner.at(Bind.ATOM)}.{lua_name(name)}", source.fields_of(record)
        if name in fields:
            return Value(text, fields[name][0])
        getter = getattr(vars(record).get(name), "fget", None)
        self.refuse(getter is None, node, f"no such field of {record.__name__}")
        kind, place = source.returned_by(getter), self.names.by_hand(getter)
        if self.is_single(owner.type):
            return Value("" if self.is_single(kind) else place, kind)
        return Value(text if place == "." else f"{self.name(node, getter)}({owner.text})", kind)

    def list(self, node: ast.expr, elements: Sequence[ast.expr]) -> Value:
        stars = [isinstance(one, ast.Starred) for one in elements]
        if any(stars):
            pairs = zip(elements, stars, strict=True)
            parts = self.values([one.value if star else ast.List([one]) for one, star in pairs])
            text = f"Python.joined({', '.join(one.text for one in parts)})"
            return Value(text, Type("list", (self.item(node, parts[-1]),)))
        values = self.values(elements)
        self.some(node, *values)
        kinds = tuple(one.type for one in values) or (NONE,)
        is_list = isinstance(node, ast.List) or not values
        kind = Type("list", kinds[:1]) if is_list else Type("tuple", kinds)
        return Value(f"{{ {', '.join(one.text for one in values)} }}" if values else "{}", kind)

    def element(self, node: ast.expr, owner: Value, at: ast.expr) -> Value:
        if isinstance(at, ast.Slice):
            ends = [at.lower or ast.Constant(0), *([at.upper] if at.upper else [])]
            lower, *upper = self.values(ends)
            self.refuse(at.step or "-" in f"{lower.text[:1]}{upper}", node, "such a slice")
            texts = [owner.text, shifted(lower, 1).text, *(one.text for one in upper)]
            return Value(
                f"Python.slice({', '.join(texts)})", Type("list", (self.item(node, owner),))
            )
        if owner.type.kind == "dict":
            return Value(f"{owner.at(Bind.ATOM)}[{self.key(at).text}]", owner.type.parts[1])
        place = self.value(at)
        if place.text == "-1":
            owner = self.kept(owner, "list")
            return Value(f"{owner.text}[#{owner.text}]", self.item(node, owner))
        self.refuse("-" in place.text[:1], node, "a place from the end")
        is_fixed = owner.type.kind == "tuple" and place.text.isdigit()
        kind = owner.type.parts[int(place.text)] if is_fixed else self.item(node, owner)
        return Value(f"{owner.at(Bind.ATOM)}[{shifted(place, 1).text}]", kind)

    def key(self, node: ast.expr) -> Value:
        """Translate a key of a dict or set; a tuple is joined to one text."""
        values = self.values(node.elts if isinstance(node, ast.Tuple) else [node])
        self.refuse(not {one.type for one in values} <= {INT, STR}, node, "a key")
        texts = [one.at(Bind.ADD) for one in values]
        return Value(" .. '\\0' .. ".join(texts), STR, Bind.CONCAT) if texts[1:] else values[0]

    def arithmetic(self, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
        kinds = {left.type.kind, right.type.kind}
        if kinds == {"set"} and isinstance(op, ast.Sub):
            return Value(f"Python.minus({left.text}, {right.text})", left.type)
        kind = FLOAT if "float" in kinds or isinstance(op, ast.Div) else INT
        if isinstance(op, ast.Pow) and left.type == FLOAT:
            return Value(f"{left.at(Bind.ATOM)} ^ {right.at(Bind.ATOM)}", FLOAT, Bind.UNARY)
        if isinstance(op, ast.FloorDiv) and kinds <= _NUMBERS:
            return Value(f"math.floor({left.at(Bind.MULTIPLY)} / {right.at(Bind.UNARY)})", kind)
        is_known = type(op) in _ARITHMETIC and kinds <= _NUMBERS
        self.refuse(not is_known, node, f"this operator between {' and '.join(sorted(kinds))}")
        if isinstance(op, ast.Add) and right.text == "1":
            return shifted(left, 1)
        sign, binds = _ARITHMETIC[type(op)]
        return Value(f"{left.at(binds)} {sign} {right.at(binds + 1)}", kind, binds)

    def as_text(self, node: ast.AST, value: Value) -> Value:
        """Convert an integer or text to text; refuse other types."""
        is_known = value.type == STR or value.type.kind == "int"
        self.refuse(not is_known, node, "the text of this")
        return value if value.type == STR else Value(f"Codec.digits({value.text})", STR)

    # Conditions

    def condition(self, node: ast.expr) -> Value:
        """Translate an expression of which only the truth value is used."""
        match node:
            case ast.BoolOp():
                return self.connected(node, self.condition)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return negated(self.condition(operand))
        return self.truth(node, self.value(node))

    def truth(self, node: ast.AST, value: Value) -> Value:
        kind = value.type.kind
        if kind in {"bool", "record", "function", "none"}:
            return value
        value = self.kept(value, "value") if value.type.optional else value
        tests = {
            "list": f"#{value.at(Bind.UNARY)} > 0",
            "set": f"next({value.text}) ~= nil",
            "int": f"{value.at(Bind.CONCAT)} ~= 0",
            "str": f"{value.at(Bind.CONCAT)} ~= ''",
        }
        self.refuse(kind not in tests, node, f"the truth of a {kind}")
        if value.type.optional:
            return Value(f"{value.text} ~= nil and {tests[kind]}", BOOL, Bind.AND)
        return Value(tests[kind], BOOL, Bind.COMPARE)

    def connected(self, node: ast.BoolOp, each: Callable[[ast.expr], Value]) -> Value:
        """Translate `and` and `or` of conditions, or `or` of a value and its default."""
        word, binds = ("and", Bind.AND) if isinstance(node.op, ast.And) else ("or", Bind.OR)
        values: list[Value] = []
        for one in node.values:
            with self.captured() as lines:
                value = each(one)
            self.refuse(lines and values, one, "a loop that is not always needed")
            self.lines += lines
            values.append(value)
        if {one.type for one in values} == {BOOL} or each == self.condition:
            texts = [values[0].at(binds), *(one.at(binds + 1) for one in values[1:])]
            return Value(f" {word} ".join(texts), BOOL, binds)
        self.refuse(word == "and" or values[2:], node, "values beside bools")
        left, right = values
        kind = replace(left.type, optional=right.type.may_be_none)
        if right.text in {"''", "0", "{}"} or left.type.kind in {"record", "function"}:
            return Value(f"{left.at(Bind.OR)} or {right.at(Bind.AND)}", kind, Bind.OR)
        left = self.kept(left, "value")
        test = self.truth(node, left).at(Bind.AND)
        return Value(f"{test} and {left.text} or {right.at(Bind.AND)}", kind, Bind.OR)

    def choice(self, node: ast.IfExp, into: str) -> Value:
        test = self.condition(node.test)
        with self.captured(1) as one:
            body = self.value(node.body)
        with self.captured(1) as two:
            other = self.value(node.orelse)
        kind = self.common(node, body.type, other.type)
        if not (one or two or body.type.may_be_none or body.type == BOOL):
            return Value(
                f"{test.at(Bind.AND)} and {body.at(Bind.AND)} or {other.at(Bind.AND)}",
                kind,
                Bind.OR,
            )
        name = self.fresh("value", into=into)
        for head, lines, value in ((f"if {test.text} then", one, body), ("else", two, other)):
            with self.inside(head, ""):
                self.lines += lines
                self.write(f"{name} = {value.text}")
        self.write("end")
        return Value(name, kind)

    def common(self, node: ast.AST, one: Type, other: Type) -> Type:
        if NONE in {one, other}:
            return replace(other if one == NONE else one, optional=True)
        kinds = {one.kind, other.kind}
        self.refuse(len(kinds) > 1 and not kinds <= {"list", "tuple"}, node, "two types in one")
        chosen = other if one.kind == "tuple" or one.parts == (NONE,) else one
        return replace(chosen, optional=one.optional or other.optional)

    def contains(self, node: ast.expr, left: ast.expr, right: ast.expr) -> Value:
        if isinstance(right, ast.Set):
            one = self.kept(self.value(left), "value")
            texts = [f"{one.text} == {other.at(Bind.CONCAT)}" for other in self.values(right.elts)]
            return Value(" or ".join(texts), BOOL, Bind.OR)
        one, whole = self.values([left, right])
        kind = whole.type.kind
        if kind in {"dict", "set"}:
            text = f"{whole.at(Bind.ATOM)}[{self.key(left).text}]"
        elif kind == "str":
            text = f"string.find({whole.text}, {one.text}, 1, true)"
        else:
            is_plain = kind == "list" and one.type.kind in _SCALARS
            self.refuse(not is_plain, node, f"a look into a {kind}")
            text = f"Python.find({whole.text}, {one.text})"
        return Value(f"{text} ~= nil", BOOL, Bind.COMPARE)

    def compared(self, node: ast.expr, op: ast.cmpop, left: Value, right: Value) -> Value:
        kinds, is_equal = {left.type.kind, right.type.kind}, type(op) in _EQUAL
        sign = _EQUAL[type(op)] if is_equal else _ORDER[type(op)]
        if isinstance(op, ast.Is | ast.IsNot) or kinds <= (_SCALARS if is_equal else _NUMBERS):
            return Value(
                f"{left.at(Bind.CONCAT)} {sign} {right.at(Bind.CONCAT)}", BOOL, Bind.COMPARE
            )
        if is_equal:
            is_flat = left.type == right.type and {one.kind for one in left.type.parts} <= _SCALARS
            name = "alike" if is_flat and left.type.kind == "tuple" else "same"
            test = Value(f"Python.{name}({left.text}, {right.text})", BOOL)
            return negated(test) if sign == "~=" else test
        self.refuse("str" in kinds, node, "texts have another order in Lua")
        one, other = (self.in_order(node, each) for each in (left, right))
        one, other = (other, one) if sign in {">", "<="} else (one, other)
        test = Value(f"Python.less({one}, {other})", BOOL)
        return negated(test) if "=" in sign else test

    def in_order(self, node: ast.AST, value: Value) -> str:
        """Return a tuple as a list; the fields of a named tuple have names in Lua."""
        value = self.kept(value, "value")
        parts = [f"{value.text}{at}" for at, _ in self.parts(node, value.type)]
        return value.text if value.type.kind == "tuple" else braced(parts)

    # Calls

    def call(self, node: ast.Call, into: str) -> Value:
        match node.func:
            case ast.Attribute(value=ast.Name(id="heapq" | "dict" as name), attr=attr):
                return self.library(node, into, f"{name}.{attr}")
            case ast.Attribute(value=owner, attr=attr):
                return self.method(node, self.value(owner), attr)
            case ast.Name(id=name):
                found = self.module.values.get(name)
                if not (getattr(found, "__module__", None) or "").startswith("headway."):
                    return self.library(node, into, name)
                is_record = isinstance(found, type)
                return self.made(node, found) if is_record else self.invoked(node, found)
        raise self.module.unsupported(node, "a call")

    def method(self, node: ast.Call, owner: Value, name: str) -> Value:
        record = owner.type.record
        if record is None:
            return self.library(node, "", f"{owner.type.kind}.{name}", owner)
        if kind := source.fields_of(record).get(name):
            text = f"{owner.at(Bind.ATOM)}.{lua_name(name)}({self.texts(node.args)})"
            return Value(text, kind[0].parts[0])
        found = vars(record).get(name)
        self.refuse(found is None, node, f"{record.__name__} has no method {name}")
        is_passed = not self.is_single(owner.type) and self.names.is_passed(found)
        return self.invoked(node, found, *[owner.text] * is_passed)

    def invoked(self, node: ast.Call, function: Any, *first: str) -> Value:
        """Translate a call of a translated or handwritten function, with positional arguments."""
        by_hand, parameters = self.names.by_hand(function), source.parameters_of(function)
        if by_hand == "=":
            return self.value(node.args[0])
        # Handwritten functions have their own defaults.
        given = self.arguments(node, parameters, has_defaults=bool(by_hand))
        texts = [text for one, text in given.items() if not self.is_single(parameters[one][0])]
        texts = [*first, *texts]
        while texts and texts[-1] == "nil":
            texts.pop()
        name = self.name(node, function)
        return Value(f"{name}({', '.join(texts)})", source.returned_by(function))

    def made(self, node: ast.Call, record: type[Any]) -> Value:
        """Translate the creation of a record: a table with its fields by name, without None."""
        given = self.arguments(node, source.fields_of(record)).items()
        texts = [f"{lua_name(name)} = {text}" for name, text in given if text != "nil"]
        return Value(braced(texts), Type("record", record=record))

    def arguments(
        self, node: ast.Call, parameters: source.Parameters, *, has_defaults: bool = False
    ) -> dict[str, str]:
        """Return the text of each argument, in the order of the parameters."""
        nodes = dict(zip(parameters, node.args, strict=False))
        nodes |= {str(one.arg): one.value for one in node.keywords}
        is_odd = {*nodes} - {*parameters} or len(nodes) < len(node.args) + len(node.keywords)
        self.refuse(is_odd, node, "other arguments")
        values = dict(zip(nodes, self.values([*nodes.values()]), strict=True))
        for name, (_, default) in parameters.items():
            self.refuse(name not in values and default is NOT_GIVEN, node, f"no {name} is given")
            if name not in values:
                values[name] = self.literal(node, None if has_defaults else default)
        return {name: values[name].text for name in parameters}

    def library(self, node: ast.Call, into: str, name: str, *owner: Value) -> Value:  # noqa: C901, PLR0911, PLR0912, PLR0915
        """Translate a builtin function, or a method of a list, set, dict or text."""
        match name, node.args, node.keywords:
            case ("bool", [one], []):
                return self.condition(one)
            case ("str", [one], []):
                return self.as_text(node, self.value(one))
            case ("len", [one], []):
                value = self.value(one)
                is_known = value.type.kind == "list" or replace(value.type, optional=False) == BYTES
                self.refuse(not is_known, node, "the length of this")
                return Value(f"#{value.at(Bind.UNARY)}", INT, Bind.UNARY)
            case ("isinstance", [one, kinds], []):
                # A record in a request has the name of its class.
                text = self.value(one).at(Bind.ATOM)
                names = [one.id for one in ast.walk(kinds) if isinstance(one, ast.Name)]
                return Value(" or ".join(f"{text}.type == '{one}'" for one in names), BOOL, Bind.OR)
            case ("any" | "all", [ast.GeneratorExp() as over], []):
                return self.any_or_all(over, into, is_any=name == "any")
            case ("min" | "max", [_, _, *_], []):
                values = self.values(node.args)
                kinds = {one.type.kind for one in values}
                self.refuse(not kinds <= _NUMBERS, node, f"the {name} of these")
                text = f"math.{name}({', '.join(one.text for one in values)})"
                return Value(text, FLOAT if "float" in kinds else INT)
            case ("min" | "max" | "sum", [over], [] | [ast.keyword(arg="default")]):
                found = self.folded(node, name, over)
                for one in node.keywords:
                    other = self.value(one.value).at(Bind.AND)
                    found = Value(f"{found.text} or {other}", found.type, Bind.OR)
                return found
            case ("min" | "max", [ast.Name() as over], [ast.keyword("key", ast.Lambda() as key)]):
                _, loops = _all_of(over, key.args.args[0].arg)
                value, sizes = self.value(over), self.comprehension(ast.ListComp(key.body, loops))
                self.refuse(self.item(node, sizes) not in {INT, FLOAT}, node, "such a key")
                return Value(f"Python.{name}({value.text}, {sizes.text})", self.item(node, value))
            case ("set", [one], []):
                value = self.value(one)
                self.refuse(value.type.kind != "values", node, "a set of another thing")
                return Value(value.text, replace(value.type, kind="set"))
            case ("replace", [one], changes):
                value = self.value(one)
                texts = [f"{one.arg} = {self.value(one.value).text}" for one in changes]
                return Value(f"Python.replace({value.text}, {braced(texts)})", value.type)
            case ("bisect_right", [_, _], [ast.keyword(value=ast.Call(args=[ast.Constant(at)]))]):
                return Value(f"Python.bisect_right({self.texts(node.args)}, {at + 1})", INT)
            case ("dict.get", [one, other], []):
                place, kind = (
                    f"{owner[0].at(Bind.ATOM)}[{self.key(one).text}]",
                    owner[0].type.parts[1],
                )
                self.refuse(kind.kind == "bool", node, "a get of what may be false")
                return Value(f"{place} or {self.value(other).at(Bind.AND)}", kind, Bind.OR)
            case ("dict.pop", [one, ast.Constant(value=None)], []):
                return self.library(ast.Call(node.func, [one], []), into, name, *owner)
            case (_, nodes, []) if name in _CALLS:
                template, result = _CALLS[name]
                is_keyed = owner and owner[0].type.kind in {"dict", "set"}
                given = [self.key(one) for one in nodes] if is_keyed else self.values(nodes)
                operands = [*owner, *given]
                self.refuse(template.count("{}") != len(operands), node, "other arguments")
                text = template.format(*(one.text for one in operands))
                return Value(text, result(operands[0].type))
        raise self.module.unsupported(node, "a function that the translator does not know")


def _all_of(over: ast.expr, name: str) -> tuple[ast.expr, list[ast.comprehension]]:
    """Return an element and the loop over all elements, by this name."""
    target, element = ast.Name(name, ast.Store()), ast.Name(name, ast.Load())
    return ast.copy_location(element, over), [ast.comprehension(target, over, [], 0)]


def _commented(node: ast.Module | ast.FunctionDef) -> list[str]:
    """Return a docstring as a comment, without its sections, which describe Python's types."""
    text = re.split(r"\n\n(?:Args|Returns|Raises):", ast.get_docstring(node) or "")[0]
    return [f"-- {line}".rstrip() for line in text.splitlines()]
