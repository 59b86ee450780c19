"""Reading of a scenario file and its what-ifs; errors name the file and the key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from copy import deepcopy
from keyword import iskeyword
from pathlib import Path
from typing import Any, NoReturn, TypeGuard, cast

from pydantic import ValidationError

from headway.core.errors import HeadwayError, InvalidValue
from headway.core.local_time import find_zone
from headway.core.naming import check_note, did_you_mean
from headway.lab.scenario import Scenario
from headway.lab.scenario_app import backoff
from headway.runtime.faults import faults

_SHOWN = 5
"""Maximum number of faults listed in an error; more are only counted."""
_HINT = "docs/how-to/simulate.md has every key"

Faults = list[tuple[str, str]]


def read_scenarios(path: Path, *, seed: int | None = None) -> list[Scenario]:
    """Read and validate a scenario file.

    Args:
        seed: seed in place of the file's.

    Returns:
        The base first, then each what-if under its own name.

    Raises:
        InvalidValue: the file cannot be read, or a key or value in it is not valid.
    """
    raw = _parsed(path)
    if seed is not None:
        raw["seed"] = seed
    changes = raw.pop("what_if", [])
    scenarios = [_checked(path, "", raw)]
    if not isinstance(changes, list):
        _refuse(path, [("what_if", "it should be a list of tables: [[what_if]]")])
    for number, change in enumerate(cast("list[Any]", changes)):
        where = f"what_if[{number}]"
        if not _is_change(change):
            _refuse(path, [(where, "it should have a name and a table `set`, and nothing else")])
        try:
            varied = merged(raw, change["set"])
        except InvalidValue as error:
            _refuse(path, [(f"{where}.set", str(error))])
        varied["name"] = change["name"]
        scenarios.append(_checked(path, f"{where}: ", varied))
    names = [scenario.name for scenario in scenarios]
    if len(set(names)) < len(names):
        _refuse(path, [("what_if", "each needs its own name, different from the base's")])
    return scenarios


def _is_change(change: object) -> TypeGuard[dict[str, Any]]:
    match change:
        case {"name": str(), "set": dict()}:
            return len(cast("dict[str, object]", change)) == 2
        case _:
            return False


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        message = f"{path}: the scenario cannot be read: {what}"
        raise InvalidValue(message) from None


def _checked(path: Path, where: str, raw: dict[str, Any]) -> Scenario:
    try:
        scenario = Scenario.model_validate(raw)
    except ValidationError as error:
        found = faults(error.errors(include_url=False), raw, toml=True)
        _refuse(path, [(where + _key(one.path), one.said) for one in found])
    wrong = [(where + key, what) for key, what in _references(path, scenario)]
    if wrong:
        _refuse(path, wrong)
    return scenario


def _refuse(path: Path, faults: Faults) -> NoReturn:
    listed = "; ".join(f"{key}: {what}" for key, what in faults[:_SHOWN])
    more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    message = f"{path}: {listed}{more}"
    raise InvalidValue(message, hint=_HINT) from None


def _key(loc: tuple[str | int, ...]) -> str:
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part.replace("_", "").replace("-", "").isalnum()
            text += ("." if text else "") + (part if plain else f'"{part}"')
    return text or "the file"


def _references(path: Path, scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield the key and message of each fault that the tables' own validation does not find."""
    yield from _bad_values(scenario)
    yield from _bad_kinds(scenario)
    yield from _bad_arrivals(path, scenario)
    names = [one.name for one in scenario.workers]
    for number, move in enumerate(scenario.moves):
        if move.do == "kill" and move.worker not in names:
            yield f"moves[{number}].worker", _unknown("worker", move.worker, names)
    if len(set(names)) < len(names):
        yield "workers", "each needs a different name"


def _bad_kinds(scenario: Scenario) -> Iterator[tuple[str, str]]:
    for name, kind in scenario.kinds.items():
        for number, use in enumerate(kind.gates):
            if use.gate not in scenario.gates:
                yield f"kinds.{name}.gates[{number}]", _unknown("gate", use.gate, scenario.gates)
        if kind.outcomes and not sum(one.share for one in kind.outcomes.values()):
            yield f"kinds.{name}.outcomes", "no share is above 0"
        for word, outcome in kind.outcomes.items():
            where = f"kinds.{name}.outcomes.{word[:80]}"
            try:
                check_note("the name of an outcome", word)
            except InvalidValue as error:
                yield where, str(error)
            if kind.hand_over is not None and outcome.then == "snooze":
                yield (
                    f"{where}.then",
                    "a signal cannot snooze a job that was handed over; use retry",
                )


def _bad_arrivals(path: Path, scenario: Scenario) -> Iterator[tuple[str, str]]:
    for number, arrivals in enumerate(scenario.arrivals):
        where = f"arrivals[{number}]"
        if arrivals.kind not in scenario.kinds:
            yield f"{where}.kind", _unknown("kind", arrivals.kind, scenario.kinds)
        for names, key in ((arrivals.args, "args"), (arrivals.fields, "fields")):
            for name in names:
                if not name.isidentifier() or iskeyword(name) or name == "job":
                    what = f"{name!r} cannot be the name of a handler's argument"
                    yield f"{where}.{key}", f"{what}; args = {{other = {{field = …}}}} renames it"
        if arrivals.file is not None and not (path.parent / arrivals.file).is_file():
            yield f"{where}.file", f"there is no file {path.parent / arrivals.file}"
        if scenario.duration is None and (arrivals.rate or arrivals.rates):
            yield f"{where}.rate", "arrivals at a rate never end: set the scenario's duration"


def _bad_values(scenario: Scenario) -> Iterator[tuple[str, str]]:
    try:
        find_zone(scenario.tz)
    except HeadwayError as error:
        yield "tz", str(error)
    for name, gate in scenario.gates.items():
        try:
            gate.spec(name)
        except HeadwayError as error:
            yield f'gates."{name}"', str(error)
    for name, kind in scenario.kinds.items():
        try:
            backoff(kind.retry)
        except HeadwayError as error:
            yield f"kinds.{name}.retry", str(error)


def _unknown(what: str, name: str, known: object) -> str:
    names = list(cast("list[str]", known))
    hint = did_you_mean(name, names, f"there are: {', '.join(names) or 'none'}")
    return f"there is no {what} {name!r} ({hint})"


_WHOLE = frozenset(
    {"constant", "uniform", "exponential", "lognormal", "argument", "choice", "numbered", "field"}
)
"""Keys of tables that represent one value, and so are replaced as a whole, not merged."""


def merged(base: dict[str, Any], changes: dict[str, object]) -> dict[str, Any]:
    """Return a copy of a scenario's tables with some values changed.

    Tables are merged; anything else is replaced. An entry of a list of tables is addressed by its
    `name`.

    Raises:
        InvalidValue: a list has no entry, or several, of the name.
    """
    made = deepcopy(base)
    _merge(made, changes, "")
    return made


def _merge(into: dict[str, Any], changes: dict[str, object], where: str) -> None:
    for key, change in changes.items():
        old = into.get(key)
        path = f"{where}{key}"
        if not isinstance(change, dict) or old is None:
            into[key] = deepcopy(cast("object", change))
            continue
        table = cast("dict[str, object]", change)
        if isinstance(old, dict):
            if _WHOLE & (table.keys() | cast("dict[str, object]", old).keys()):
                into[key] = deepcopy(table)
            else:
                _merge(cast("dict[str, Any]", old), table, f"{path}.")
        elif isinstance(old, list):
            _merge_named(cast("list[object]", old), table, path)
        else:
            into[key] = deepcopy(table)


def _merge_named(old: list[object], changes: dict[str, object], where: str) -> None:
    for name, change in changes.items():
        found = [
            cast("dict[str, Any]", one)
            for one in old
            if isinstance(one, dict) and cast("dict[str, Any]", one).get("name") == name
        ]
        if len(found) != 1 or not isinstance(change, dict):
            message = f"{where}.{name}: {len(found) or 'none'} of the list has the name {name!r}"
            raise InvalidValue(message, hint="give each entry of the list a different name")
        _merge(found[0], cast("dict[str, object]", change), f"{where}.{name}.")
