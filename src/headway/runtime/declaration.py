"""What an app declares to its store: once, and again when more was declared since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from headway.contract.definitions import (
    DeclareEntry,
    DeclareGate,
    DeclareLane,
    DefineRequest,
    EntrySpec,
    Item,
    LaneSpec,
)
from headway.contract.store import Store
from headway.core.errors import InvalidValue
from headway.core.gates.spec import GateSpec
from headway.runtime.kind import Kind


class Declaration:
    """The gates, lanes and entries of an app.

    Attributes:
        lanes: by name.
        entries: by name.
        gates: that the app chooses at run time, by name; said again, they take the place of
            those that its kinds name.
    """

    def __init__(self, author: str) -> None:
        self.lanes: dict[str, LaneSpec] = {}
        self.entries: dict[str, EntrySpec] = {}
        self.gates: dict[str, GateSpec] = {}
        self.author = author
        self._declared: tuple[Store, int] | None = None

    def add_lane(self, spec: LaneSpec) -> None:
        """Declare a lane.

        Raises:
            InvalidValue: it is declared already.
        """
        if spec.name in self.lanes:
            message = f"the lane {spec.name!r} is declared twice"
            raise InvalidValue(message, hint="say all of it in one place")
        self.lanes[spec.name] = spec

    def add_entry(self, spec: EntrySpec) -> None:
        """Declare an entry.

        Raises:
            InvalidValue: it is declared already.
        """
        if spec.name in self.entries:
            message = f"the timetable has two entries {spec.name!r}"
            raise InvalidValue(message, hint="name one of them otherwise")
        self.entries[spec.name] = spec

    def shortest_lease_ms(self, lanes: Iterable[str]) -> int | None:
        """The shortest lease of these lanes, where one has any."""
        leases = [self.lanes[name].lease_ms for name in lanes if name in self.lanes]
        return min((ms for ms in leases if ms is not None), default=None)

    def forget(self) -> bool:
        """Make the next `declare` repeat all; return whether anything was declared."""
        declared, self._declared = self._declared, None
        return declared is not None

    async def declare_gates(self, store: Store, specs: Iterable[GateSpec]) -> None:
        """Declare gates now, and remember them to repeat when the store was lost.

        Args:
            specs: a later one of the same name replaces the former.

        Raises:
            InvalidValue: the store knows one as another kind; nothing was written or remembered.
        """
        gates = {spec.name: spec for spec in specs}
        if gates:
            items = tuple(DeclareGate(spec=spec) for spec in gates.values())
            await store.define(DefineRequest(items=items, author=self.author))
            self.gates |= gates

    async def declare(self, store: Store, kinds: Mapping[str, Kind]) -> None:
        """Declare everything to the store, unless that was done and nothing was added since.

        Args:
            kinds: by name.

        Raises:
            InvalidValue: two gates of one name differ, or a kind is not complete.
        """
        size = len(kinds) + len(self.lanes) + len(self.entries)
        if self._declared == (store, size):
            return
        for kind in kinds.values():
            kind.check_stages()
            _check_follow_up(kind, kinds)
        gates = {spec.name: spec for spec in _gates(kinds.values())} | self.gates
        items: list[Item] = [DeclareGate(spec=spec) for spec in gates.values()]
        items += [DeclareLane(spec=spec) for spec in self.lanes.values()]
        items += [DeclareEntry(spec=spec) for spec in self.entries.values()]
        if items:
            await store.define(DefineRequest(items=tuple(items), author=self.author))
        self._declared = (store, size)


def _gates(kinds: Iterable[Kind]) -> Iterator[GateSpec]:
    seen: dict[str, GateSpec] = {}
    for kind in kinds:
        for spec in kind.gates:
            if spec.name not in seen:
                seen[spec.name] = spec
                yield spec
            elif seen[spec.name] != spec:
                message = f"the gate {spec.name!r} is declared in two ways"
                raise InvalidValue(message, hint="declare it once, and use that in both kinds")


def _check_follow_up(kind: Kind, kinds: Mapping[str, Kind]) -> None:
    _check_takes(kind, kind.options.on_final, kinds, ("state: str", "reason: str"))
    _check_takes(
        kind, kind.options.on_accepted, kinds, ("state: str", "candidate: str", "run: int")
    )


def _check_takes(
    kind: Kind, follow: str | None, kinds: Mapping[str, Kind], given: tuple[str, ...]
) -> None:
    if follow is None or follow not in kinds:
        return  # another app may have it
    parameters = ("job: str", *given)
    if not kinds[follow].takes([one.partition(":")[0] for one in parameters]):
        message = f"the kind {follow!r} follows {kind.name!r}, but cannot take what it is given"
        raise InvalidValue(
            message,
            hint=f"let its handler take {', '.join(parameters[:-1])} and {parameters[-1]}; "
            "its first parameter, annotated hw.Job, may have any other name",
        )
