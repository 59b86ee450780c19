"""Handlers: the functions that do the work of a kind or a stage, and their arguments."""

from __future__ import annotations

import inspect
import math
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, cast

import msgspec

from headway.core.errors import InvalidArguments, InvalidValue, PayloadTooLarge
from headway.core.job import MAX_ARGS
from headway.core.naming import did_you_mean
from headway.runtime.job import Job

RESERVED = frozenset(
    {
        "candidates",
        "connection",
        "due",
        "expires",
        "job_id",
        "key",
        "kind",
        "lane",
        "priority",
        "subject",
        "tenant",
    }
)
"""Names of `send`'s own options, which no argument can have."""

_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)
_WHERE = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<where>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile("Object missing required field `(.*)`")
_UNEXPECTED = re.compile("Object contains unknown field `(.*)`", re.DOTALL)
_encode = msgspec.json.Encoder().encode


NONE: Mapping[str, object] = {}
"""The values of arguments that nothing needs."""


class Arguments:
    """The parameters of a handler, other than the job itself.

    Args:
        job: name of the parameter for the job; empty if there is none.

    Attributes:
        names: in the order of the signature.
        required: names of the parameters without a default.
        open: whether it has `**others`, and so accepts any argument.
    """

    def __init__(
        self, kind: str, parameters: list[inspect.Parameter], *, strict: bool, job: str = ""
    ) -> None:
        self.kind = kind
        self._job = job
        self.open = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
        named = [one for one in parameters if one.kind in _PLAIN]
        self.names = tuple(one.name for one in named)
        self._known = frozenset(self.names)
        self.required = frozenset(one.name for one in named if one.default is one.empty)
        self._positional = all(one.kind is _PLAIN[0] for one in named)
        self._struct = _struct(kind, named, strict=strict and not self.open)
        self._default_values = {
            one.name: one.default for one in named if one.default is not one.empty
        }
        self._exact = frozenset(
            one.name
            for one in msgspec.structs.fields(self._struct)
            if _is_exact(msgspec.inspect.type_info(one.type))
        )
        self._all_exact = not self.open and self._exact == self._known
        self._decoder = msgspec.json.Decoder(self._struct)
        self._raw = msgspec.json.Decoder(dict[str, Any])

    def check(
        self, given: dict[str, object], *, values: bool = True
    ) -> tuple[bytes, Mapping[str, object]]:
        """Validate arguments and encode them; equal arguments always give the same bytes.

        Args:
            values: whether the values are needed.

        Returns:
            The arguments as a JSON object without defaults, and the values of all arguments,
            including defaults.

        Raises:
            InvalidArguments: an argument is missing, unknown, of the wrong type, or not JSON.
            PayloadTooLarge: together they exceed the size limit.
        """
        if not given and not self.required:
            return b"{}", self._default_values
        try:
            record = msgspec.convert(given, self._struct)
            if values or self.open or self._default_values:
                found = msgspec.structs.asdict(record)
                if self.open:
                    found |= self._others(given)
                data = _encode(self._without_defaults(found) if self._default_values else found)
            else:
                found, data = NONE, _encode(record)
            doubtful = None if self._all_exact else self._doubtful(given)
            if doubtful:
                self._refuse_naive(doubtful)
                self._refuse_nan(doubtful, data)
                # JSON cannot represent some other values either.
                self._decoder.decode(data)
        except InvalidArguments:
            raise
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError) as error:
            if not (self.open or given.keys() <= self._known) or not given.keys() >= self.required:
                raise self._names_wrong(given) from None
            raise self._refused(error) from None
        except RecursionError:
            message = f"{self.kind}: the arguments are nested too deeply"
            raise InvalidArguments(message, hint="store them, send a reference") from None
        if len(data) > MAX_ARGS:
            message = f"{self.kind}: the arguments have {len(data)} bytes"
            raise PayloadTooLarge(message, hint=f"at most {MAX_ARGS}; store them, send a reference")
        return data, found

    def _others(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of `**others`, in order of their names.

        Raises:
            InvalidArguments: one has the name of the parameter for the job.
        """
        if self._job in given:
            message = f"{self.kind}: {self._job!r} is the parameter that gets the job itself"
            raise InvalidArguments(message, hint="rename the argument, or the parameter")
        return {name: given[name] for name in sorted(given.keys() - self._known)}

    def values(self, args: bytes) -> Mapping[str, object]:
        """Return the arguments of a stored job by name, including defaults.

        Raises:
            InvalidArguments: the handler's annotations refuse them.
        """
        try:
            others = self._raw.decode(args) if self.open else {}
            return {**others, **msgspec.structs.asdict(self._decoder.decode(args))}
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise self._mismatched(error) from None

    def call(self, fn: Callable[..., object], args: bytes, *first: object) -> object:
        """Call a handler with the arguments of a stored job.

        Raises:
            InvalidArguments: the handler's annotations refuse the arguments; it was not called.
        """
        if self._positional and not self.open:
            try:
                record = self._decoder.decode(args)
            except (msgspec.ValidationError, msgspec.DecodeError) as error:
                raise self._mismatched(error) from None
            return fn(*first, *msgspec.structs.astuple(record))
        return fn(*first, **self.values(args))

    def from_texts(
        self, texts: Mapping[str, str], values: Mapping[str, object]
    ) -> dict[str, object]:
        """Interpret arguments that were passed as text, such as on a command line.

        Args:
            values: the same arguments, parsed as JSON if they are JSON.

        Returns:
            For each argument its parsed value, or the text if the annotation accepts only that,
            such as `str` for `1`.
        """
        types = {one.name: one.type for one in msgspec.structs.fields(self._struct)}
        return {
            name: texts[name]
            if name in types and not _fits(types[name], value) and _fits(types[name], texts[name])
            else value
            for name, value in values.items()
        }

    def _doubtful(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments that may not be the same in JSON."""
        exact = self._exact
        return {
            name: value
            for name, value in given.items()
            if type(value) not in _TEXT_OR_WHOLE
            and name not in exact
            and not (type(value) is float and math.isfinite(value))
        }

    def _refuse_naive(self, given: Mapping[str, object]) -> None:
        """Check for naive datetimes in places that annotations do not cover: unions, lists, Any.

        Raises:
            InvalidArguments: a value contains a datetime without an offset.
        """
        for name, value in given.items():
            if type(value) not in _SCALARS and _contains_naive(value):
                message = f"{self.kind}: argument {name!r} contains a datetime without an offset"
                hint = (
                    "it would mean a different time on each machine; add a time zone, such as UTC"
                )
                raise InvalidArguments(message, hint=hint)

    def _refuse_nan(self, given: Mapping[str, object], data: bytes) -> None:
        """Check for numbers that JSON writes as null.

        Raises:
            InvalidArguments: a value contains NaN or an infinity.
        """
        if b"null" in data and any(map(_contains_nan, given.values())):
            message = (
                f"{self.kind}: an argument contains NaN or an infinity, which JSON cannot represent"
            )
            raise InvalidArguments(message, hint="send None or text instead")

    def _without_defaults(self, values: Mapping[str, object]) -> Mapping[str, object]:
        """Return the arguments that differ from their defaults.

        Defaults are not stored, so that passing one explicitly makes no difference, and a worker
        that does not know a new optional parameter yet can still run the job.
        """
        kept = dict(values)
        for name, default in self._default_values.items():
            value = kept[name]
            if value is default or (type(value) is type(default) and value == default):
                del kept[name]
        return kept

    def _names_wrong(self, given: Mapping[str, object]) -> InvalidArguments:
        strange = set[str]() if self.open else given.keys() - self._known
        if not strange:
            missing = min(self.required - given.keys())
            message = f"{self.kind}: the argument {missing!r} is missing"
            return InvalidArguments(message, hint=f"it takes {', '.join(self.names)}")
        # Unknown arguments first, because a missing one may be misspelt there.
        unknown = min(strange)
        options = sorted(RESERVED - {"kind"})
        takes = f"it takes {', '.join(self.names)}" if self.names else "it takes none"
        takes = f"{takes}; the options of a send are {', '.join(options)}"
        message = f"{self.kind}: there is no argument {unknown[:80]!r}"
        hint = did_you_mean(unknown, [*self.names, *options], takes)
        return InvalidArguments(message, hint=hint)

    def _refused(self, error: Exception) -> InvalidArguments:
        match = _WHERE.match(str(error))
        what, where = (match["what"], match["where"]) if match else (str(error), None)
        text = what.replace("`", "")
        text = f"{text[:1].lower()}{text[1:300]}"
        if where:
            return InvalidArguments(f"{self.kind}: argument {where!r}: {text}")
        return InvalidArguments(f"{self.kind}: {text}", hint="arguments must be JSON values")

    def _mismatched(self, error: Exception) -> InvalidArguments:
        """Return the error for a stored job with arguments that this handler does not take."""
        if match := _MISSING.fullmatch(str(error)):
            message = f"{self.kind}: the argument {match[1]!r} is missing"
        elif match := _UNEXPECTED.fullmatch(str(error)):
            message = f"{self.kind}: there is no argument {match[1]!r:.80}"
        else:
            message = self._refused(error).message
        hint = "the job was sent for another version of the handler: give new parameters a default"
        return InvalidArguments(message, hint=f"{hint}, keep old ones")


def _fits(annotation: Any, value: object) -> bool:  # noqa: ANN401  (an annotation)
    try:
        msgspec.convert(value, annotation)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError):
        return False
    return True


def read_parameters(kind: str, fn: Callable[..., object]) -> list[inspect.Parameter]:
    """Return a handler's parameters, with their annotations resolved to types.

    Raises:
        InvalidValue: the handler is a generator, an annotation cannot be resolved, or a parameter
            cannot be passed by name.
    """
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        message = f"the handler of {kind!r} is a generator, whose body a call does not run"
        raise InvalidValue(message, hint="use return instead of yield")
    try:
        hints = typing.get_type_hints(fn, include_extras=True)
    except Exception as error:  # noqa: BLE001  (an annotation may be any expression)
        message = f"the annotations of {kind!r} cannot be read: {error}"
        hint = "use names that its module defines, not only `if TYPE_CHECKING`"
        raise InvalidValue(message, hint=hint) from None
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(fn).parameters.values():
        # A name with two underscores is positional by an older convention (PEP 484).
        if one.kind in _UNNAMED or one.name.startswith("__"):
            message = f"the parameter {one.name!r} of {kind!r} cannot be passed by name"
            raise InvalidValue(message, hint="arguments are sent by name")
        parameters.append(one.replace(annotation=hints.get(one.name, one.empty)))
    return parameters


def refuse_reserved(kind: str, names: tuple[str, ...]) -> None:
    """Refuse parameters with the names of `send`'s options.

    Raises:
        InvalidValue: a name is reserved.
    """
    taken = RESERVED.intersection(names)
    if taken:
        name = min(taken)
        message = f"the handler of {kind!r} has a parameter {name!r}, which is an option of send"
        raise InvalidValue(message, hint=f"rename it, for example to {name}_")


def _struct(kind: str, named: list[inspect.Parameter], *, strict: bool) -> type[msgspec.Struct]:
    fields: list[tuple[str, Any, Any]] = []
    for one in named:
        kind_of = _annotation(one.annotation)
        _refuse_unsupported(kind, one.name, kind_of)
        fields.append((one.name, kind_of, _default(one)))
    # Required fields first: a keyword-only parameter may follow one with a default.
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=strict)


def _default(one: inspect.Parameter) -> object:
    if one.default is one.empty:
        return msgspec.field()
    default = one.default
    if isinstance(default, list | dict | set | bytearray):
        return msgspec.field(default_factory=cast("Any", default).copy)
    return msgspec.field(default=default)


def _annotation(annotation: object) -> object:
    if annotation is inspect.Parameter.empty or annotation is object:
        return Any
    if annotation is datetime:
        # Without an offset, it would mean a different time on each machine.
        return Annotated[datetime, msgspec.Meta(tz=True)]
    return annotation


def _refuse_unsupported(kind: str, name: str, annotation: object) -> None:
    try:
        strange = isinstance(msgspec.inspect.type_info(annotation), msgspec.inspect.CustomType)
    except (TypeError, NameError) as error:
        message = f"the annotation of {name!r} in {kind!r} is not supported: {error}"
        raise InvalidValue(message) from None
    if annotation is Job:
        message = f"the parameter {name!r} of {kind!r} takes the job, but is not the first"
        raise InvalidValue(message, hint="make it the first parameter of the handler")
    if strange:
        message = f"the argument {name!r} of {kind!r} has a type that JSON cannot represent"
        raise InvalidValue(message, hint="use plain types, dataclasses, or msgspec.Struct")


# Most values are of these types, and a pattern match costs ten times as much as a set lookup.
_TEXT_OR_WHOLE = frozenset((str, int, bool, type(None)))
_SCALARS = _TEXT_OR_WHOLE | {float}
_EXACT = (
    *(msgspec.inspect.StrType, msgspec.inspect.IntType, msgspec.inspect.BoolType),
    msgspec.inspect.NoneType,
)


def _is_exact(kind: msgspec.inspect.Type) -> bool:
    """Return whether all values of a type stay the same in JSON, as texts and integers do."""
    match kind:
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            return _is_exact(kind.item_type)
        case msgspec.inspect.UnionType():
            return all(map(_is_exact, kind.types))
        case _:
            return isinstance(kind, _EXACT)


def _contains_naive(value: object) -> bool:
    if isinstance(value, datetime):
        return value.tzinfo is None
    return any(_contains_naive(one) for one in _children(value) if type(one) not in _SCALARS)


def _contains_nan(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return any(_contains_nan(one) for one in _children(value) if type(one) not in _TEXT_OR_WHOLE)


def _children(value: object) -> Iterable[object]:
    match value:
        case Mapping():
            return cast("Mapping[object, object]", value).values()
        case list() | tuple() | set() | frozenset():
            return cast("list[object]", value)
        case msgspec.Raw():
            return ()
        case _:
            # For a record, such as a dataclass, its fields; datetimes are left as they are.
            plain = msgspec.to_builtins(value, builtin_types=(datetime,))
            return cast("dict[str, object]", plain).values() if isinstance(plain, dict) else ()


class ExecutionMode(StrEnum):
    """Where a handler runs."""

    LOOP = "loop"
    """In the worker's event loop: async handlers."""
    THREAD = "thread"
    """In a thread: plain functions."""
    PROCESS = "process"
    """In a separate process, whose crash fails only this attempt: either, with `processes=True`."""


class Handler:
    """A handler function, its arguments, and where it runs."""

    __slots__ = ("arguments", "fn", "place", "wants_job")

    def __init__(
        self, kind: str, fn: Callable[..., Any], *, processes: bool = False, strict: bool = True
    ) -> None:
        parameters = read_parameters(kind, fn)
        self.fn = fn
        self.wants_job = bool(parameters) and _is_job(parameters[0])
        job = parameters[0].name if self.wants_job else ""
        self.arguments = Arguments(kind, parameters[self.wants_job :], strict=strict, job=job)
        refuse_reserved(kind, self.arguments.names)
        self.place = _place(kind, fn, processes=processes)

    def call(self, job: Job, args: bytes) -> object:
        """Call the function; if it is async, the caller must await the result.

        Raises:
            InvalidArguments: its annotations refuse the arguments; it was not called.
        """
        first = (job,) if self.wants_job else ()
        return self.arguments.call(self.fn, args, *first)


def _is_job(parameter: inspect.Parameter) -> bool:
    if parameter.annotation is parameter.empty:
        return parameter.name == "job"
    return parameter.annotation is Job


def _place(kind: str, fn: Callable[..., Any], *, processes: bool) -> ExecutionMode:
    if not processes:
        return ExecutionMode.LOOP if inspect.iscoroutinefunction(fn) else ExecutionMode.THREAD
    if "<" in fn.__qualname__:
        message = f"the handler of {kind!r} cannot be found by another process"
        raise InvalidValue(message, hint="processes=True needs a function of a module")
    return ExecutionMode.PROCESS
