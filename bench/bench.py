"""The context of all cases: the store, the systems, the scale, and the notebook."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from bench.child import Child, ChildFailed
from bench.notebook import Figure, Goal, Notebook, digits
from bench.places.place import Ground, Place
from bench.scale import Scale
from bench.systems.system import System


@dataclass(slots=True)
class Bench:
    """The measurements on one store.

    Attributes:
        folder: Folder for the databases of the run.
        systems: The measured systems, this engine first.
    """

    ground: Ground
    scale: Scale
    folder: Path
    console: Console
    systems: list[System]
    notebook: Notebook = field(default_factory=Notebook)
    producers: dict[System, Child] = field(default_factory=dict)
    stack: ExitStack = field(default_factory=ExitStack)
    made: int = 0

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        for producer in self.producers.values():
            _let_go(producer)
        self.stack.close()

    @property
    def engine(self) -> System:
        """This engine."""
        return self.systems[0]

    @property
    def peers(self) -> Sequence[System]:
        """All other systems."""
        return self.systems[1:]

    @contextmanager
    def fresh(self) -> Generator[Place]:
        """Create an empty store, which is removed afterwards."""
        self.made += 1
        folder = self.folder / f"{self.ground.name}-{self.made:03}"
        folder.mkdir()
        try:
            with self.ground.fresh(folder) as place:
                yield place
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def producing(self, system: System, place: Place) -> Generator[Child]:
        """Return the process that enqueues for a system, with the queue of a place open.

        Each system has one for the whole run, so that imports are paid once. Different settings of
        the same system have separate processes, because declarations are part of the setting.
        """
        producer = self.producers.get(system)
        if producer is None:
            producer = self.stack.enter_context(system.producing())
            self.producers[system] = producer
        try:
            producer.ask(place.url)
            yield producer
            producer.ask(None)
        except BaseException:
            # Its state is unknown: start another process the next time.
            self.producers.pop(system, None)
            raise

    def enqueue(self, system: System, place: Place, verb: str, *rest: object) -> float:
        """Send a command to the enqueuing process; return its reply, mostly jobs per second."""
        with self.producing(system, place) as producer:
            return producer.ask((verb, *rest))

    def in_turns(
        self, turns: dict[str, Callable[[Place], float]], *, repeats: int | None = None
    ) -> dict[str, list[float]]:
        """Measure in turns, A B A B, each time on an empty store; drop what fails."""
        values: dict[str, list[float]] = {name: [] for name in turns}
        failed: set[str] = set()
        repeats = repeats or self.scale.repeats
        for repeat in range(repeats):
            for name, measure in turns.items():
                if name in failed:
                    continue
                self.doing(f"{name}, {repeat + 1} of {repeats}")
                try:
                    with self.fresh() as place:
                        values[name].append(measure(place))
                except ChildFailed as failure:
                    failed.add(name)
                    self.fault(name, f"failed: {failure}")
        return {name: each for name, each in values.items() if each}

    def say(self, text: str, style: str | None = None) -> None:
        """Print a line without markup."""
        self.console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    def doing(self, what: str) -> None:
        """Show the current step."""
        self.say(f"  … {what}", "dim")

    def add(self, case: str, system: str, unit: str, values: list[float], note: str = "") -> Figure:
        """Record a figure and show it."""
        figure = self.notebook.add(case, system, unit, values, note)
        self.show(figure)
        return figure

    def show(self, figure: Figure, prefix: str = "") -> None:
        """Print a figure: the median, minimum and maximum of its repeats."""
        values = figure.values
        spread = f"  ({digits(min(values))} to {digits(max(values))})" if len(values) > 1 else ""
        note = f"  [{figure.note}]" if figure.note else ""
        name = prefix + figure.system
        self.say(f"  {name:<44} {digits(figure.median):>9} {figure.unit}{spread}{note}")

    def goal(
        self, what: str, ratio: float, *, least: float | None = None, most: float | None = None
    ) -> Goal:
        """Record a goal and show whether it is met."""
        goal = self.notebook.goal(what, ratio, least=least, most=most)
        self.say(f"  {goal}", "green" if goal.met else "bold red")
        return goal

    def delivered(self, system: str, what: str, lost: int, double: int) -> None:
        """Record a fault if jobs were lost or done twice."""
        if lost or double:
            self.fault(system, f"{what}: {lost} lost, {double} done twice")

    def fault(self, system: str, what: str) -> None:
        """Record a fault, or a remark if it is a peer's."""
        of_peer = any(system == peer.name for peer in self.peers)
        faults = self.notebook.remarks if of_peer else self.notebook.faults
        faults.append(f"{system}, {what}")
        self.say(f"  {faults[-1]}", "bold red")


def _let_go(producer: Child) -> None:
    """Ask an enqueuing process to exit, if it has not exited already."""
    try:
        producer.send(None)
    except ChildFailed:
        return
