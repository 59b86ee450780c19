"""Reads a scenario: what is wrong with it is said with the file and the key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from headway.core.errors import HeadwayError, InvalidValue
from headway.core.naming import did_you_mean
from headway.core.zone import find_zone
from headway.lab.gate_specs import backoff, gate_spec
from headway.lab.scenario import Scenario
from headway.lab.what_if import merged

_SHOWN = 5
"""More faults than these are only counted."""
_HINT = "docs/how-to/simulate.md has every key"

Faults = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScenarioFile:
    """A scenario and its what-ifs.

    Attributes:
        scenarios: the base first, then each what-if under its own name.
    """

    path: Path
    scenarios: tuple[Scenario, ...]


def read_scenario(path: Path, *, seed: int | None = None) -> ScenarioFile:
    """Reads and checks a scenario.

    Returns:
        What it says.

    Raises:
        InvalidValue: the file cannot be read, or a key of it cannot be what it is meant to be.
    """
    raw = _parsed(path)
    if seed is not None:
        raw["seed"] = seed
    changes = raw.pop("what_if", [])
    scenarios = [_checked(path, "", raw)]
    if not isinstance(changes, list):
        raise InvalidValue(
            _message(path, [("what_if", "it is a list of tables: [[what_if]]")]), hint=_HINT
        )
    for number, change in enumerate(cast("list[dict[str, Any]]", changes)):
        where = f"what_if[{number}]"
        if change.keys() != {"name", "set"} or not isinstance(change["name"], str):
            raise InvalidValue(
                _message(path, [(where, "it has a name and a table `set`, and nothing else")]),
                hint=_HINT,
            )
        try:
            varied = merged(raw, cast("dict[str, object]", change["set"]))
        except InvalidValue as error:
            raise InvalidValue(_message(path, [(f"{where}.set", str(error))]), hint=_HINT) from None
        varied["name"] = change["name"]
        scenarios.append(_checked(path, f"{where}: ", varied))
    names = [scenario.name for scenario in scenarios]
    if len(set(names)) < len(names):
        raise InvalidValue(
            _message(path, [("what_if", "two of them have the same name, or the base's")]),
            hint=_HINT,
        )
    return ScenarioFile(path=path, scenarios=tuple(scenarios))


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"{path}: the scenario cannot be read: {error}"
        raise InvalidValue(message) from None


def _checked(path: Path, where: str, raw: dict[str, Any]) -> Scenario:
    try:
        scenario = Scenario.model_validate(raw)
    except ValidationError as error:
        faults = [
            (where + _key(one["loc"]), _said(one)) for one in cast("list[Any]", error.errors())
        ]
        raise InvalidValue(_message(path, faults), hint=_HINT) from None
    faults = [(where + key, said) for key, said in _references(path, scenario)]
    if faults:
        raise InvalidValue(_message(path, faults), hint=_HINT)
    return scenario


def _message(path: Path, faults: Faults) -> str:
    listed = "; ".join(f"{key}: {said}" for key, said in faults[:_SHOWN])
    more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    return f"{path}: {listed}{more}"


def _key(loc: tuple[str | int, ...]) -> str:
    # A union's chosen shape stands in the place as well, and is no key of the file.
    parts = list(loc)
    if len(parts) > 2 and parts[0] in {"gates", "moves"}:
        del parts[2]
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part.replace("_", "").replace("-", "").isalnum()
            text += ("." if text else "") + (part if plain else f'"{part}"')
    return text or "the file"


def _said(error: dict[str, Any]) -> str:
    match error["type"]:
        case "missing":
            return "it is missing"
        case "extra_forbidden":
            return "there is no such key"
        case _:
            text = cast("str", error["msg"]).removeprefix("Value error, ")
            return text[:1].lower() + text[1:]


def _references(path: Path, scenario: Scenario) -> Iterator[tuple[str, str]]:
    """What is wrong with a scenario whose tables each have the right shape."""
    yield from _bad_values(scenario)
    yield from _bad_kinds(scenario)
    yield from _bad_arrivals(path, scenario)
    names = [one.name for one in scenario.workers]
    for number, move in enumerate(scenario.moves):
        if move.do == "kill" and move.worker not in names:
            yield f"moves[{number}].worker", _unknown("worker", move.worker, names)
    if len(set(names)) < len(names):
        yield "workers", "two of them have the same name"


def _bad_kinds(scenario: Scenario) -> Iterator[tuple[str, str]]:
    for name, kind in scenario.kinds.items():
        for number, use in enumerate(kind.gates):
            if use.gate not in scenario.gates:
                yield f"kinds.{name}.gates[{number}]", _unknown("gate", use.gate, scenario.gates)
        if kind.outcomes and not sum(one.share for one in kind.outcomes.values()):
            yield f"kinds.{name}.outcomes", "no share is above 0"
        for word, outcome in kind.outcomes.items():
            if kind.hand_over is not None and outcome.then == "snooze":
                where = f"kinds.{name}.outcomes.{word}.then"
                yield where, "a signal cannot snooze what was handed over: retry it"


def _bad_arrivals(path: Path, scenario: Scenario) -> Iterator[tuple[str, str]]:
    for number, arrivals in enumerate(scenario.arrivals):
        where = f"arrivals[{number}]"
        if arrivals.kind not in scenario.kinds:
            yield f"{where}.kind", _unknown("kind", arrivals.kind, scenario.kinds)
        if arrivals.file is not None and not (path.parent / arrivals.file).is_file():
            yield f"{where}.file", f"there is no file {path.parent / arrivals.file}"
        if scenario.duration is None and (arrivals.rate or arrivals.rates):
            yield f"{where}.rate", "arrivals at a rate never end: give the scenario a duration"


def _bad_values(scenario: Scenario) -> Iterator[tuple[str, str]]:
    try:
        find_zone(scenario.tz)
    except HeadwayError as error:
        yield "tz", str(error)
    for name, gate in scenario.gates.items():
        try:
            gate_spec(name, gate)
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
