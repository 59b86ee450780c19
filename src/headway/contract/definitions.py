"""Definitions: gates, lanes, timetable entries, closings and tokens, by code or by an operator."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from headway.core.gates.spec import GateSpec
from headway.core.job import NewJob
from headway.core.timetable.fires import MisfirePolicy
from headway.core.timetable.schedule import Schedule


class Role(StrEnum):
    """The role of a token."""

    VIEWER = "viewer"
    PRODUCER = "producer"
    WORKER = "worker"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSecret:
    """The proof that a caller has the token.

    Attributes:
        digest: SHA-256 of the secret, in hex; the secret itself is stored nowhere.
        until_at: until when it is accepted; None for as long as the token.
    """

    digest: str
    until_at: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSpec:
    """A token.

    Attributes:
        id: 16 hexadecimal digits, part of the token's text.
        name: a label; the trail shows it as the author of what is done with it.
        roles: at least one.
        tenants: only these; None for any.
        lanes: only these, or those that fit a pattern such as `send_*`; None for any.
        closes: gates that its runs may close, by resolved name or by a pattern such as `rate:*`,
            besides those that its roles let it close.
        secrets: the newest first; an older one is accepted until its end.
        expires_at: when it ends; None for never.
    """

    id: str
    name: str
    roles: tuple[Role, ...]
    secrets: tuple[TokenSecret, ...]
    tenants: tuple[str, ...] | None = None
    lanes: tuple[str, ...] | None = None
    closes: tuple[str, ...] = ()
    expires_at: int | None = None


Overlap = Literal["skip", "one", "all"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclareGate:
    """Code says what a gate is; an operator's values win until reset."""

    spec: GateSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class SetGate:
    """An operator changes numbers of a gate: declared, a keyed instance, or an implicit one.

    Attributes:
        name: a declared name or template, a resolved name of a template, a pool's member
            (`pool/member`), or an implicit gate (`all`, `lane:…`, `tenant:…`, `kind:…`).
        capacity: of a Slots, a member, or an implicit gate.
        limit: of a Rate.
        per_ms: of a Rate.
        members: of a Pool: replaces them all.
    """

    name: str
    capacity: int | None = None
    limit: int | None = None
    per_ms: int | None = None
    members: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetGate:
    """Forgets an operator's values of a gate; what code declares holds again."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CloseGate:
    """Closes any gate, for good or until a moment; a keyed template itself cannot be closed."""

    name: str
    until_at: int | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenGate:
    """Ends a closing."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneSpec:
    """The settings of a lane; None leaves the engine's default.

    Attributes:
        name: name of the lane.
        concurrency: maximum number of its jobs in handlers at once; the capacity of `lane:name`.
        lease_ms: how long a worker's runs stay valid without a heartbeat.
        target_ms: latency target, from due to start.
        fair: "tenant" shares starts between tenants.
        weights: weights of tenants in a fair lane (default: 1).
        max_backlog: above this number of unfinished jobs, new ones are refused.
    """

    name: str
    concurrency: int | None = None
    lease_ms: int | None = None
    target_ms: int | None = None
    fair: Literal["tenant"] | None = None
    weights: tuple[tuple[str, int], ...] = ()
    max_backlog: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclareLane:
    """Code says what a lane carries; an operator's values win until reset."""

    spec: LaneSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class SetLane:
    """An operator replaces what a lane carries."""

    spec: LaneSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetLane:
    """Forgets an operator's values of a lane."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EntrySpec:
    """A timetable entry.

    Attributes:
        name: name of the entry.
        schedule: when it fires.
        job: job to enqueue; its id, due time and entry are filled in for each fire.
        misfire: what happens to fires missed during an outage.
        misfire_cap: maximum number of missed fires that "all" makes up for.
        overlap: what happens to a fire while the previous fire's job is still waiting or running.
        enabled: whether it fires.
    """

    name: str
    schedule: Schedule
    job: NewJob
    misfire: MisfirePolicy = MisfirePolicy.ONCE
    misfire_cap: int = 100
    overlap: Overlap = "skip"
    enabled: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclareEntry:
    """Code says when an entry fires; a changed one begins a new revision, its queued fires fall."""

    spec: EntrySpec


@dataclass(frozen=True, kw_only=True, slots=True)
class EnableEntry:
    """An operator switches an entry on or off; its queued fires fall when it goes off."""

    name: str
    enabled: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveEntry:
    """Forgets an entry but for the moment it fired last; its queued fires fall."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SetToken:
    """Makes a token, or replaces what the token of this id is; when it was made and used stays."""

    spec: TokenSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class RevokeToken:
    """Removes a token, which cannot be used any more."""

    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NoteUse:
    """Tokens were used; no change of definitions, and not on the trail.

    Attributes:
        used: each id and when; unknown ids are passed over, an earlier moment changes nothing.
    """

    used: tuple[tuple[str, int], ...]


Item = (
    DeclareGate
    | SetGate
    | ResetGate
    | CloseGate
    | OpenGate
    | DeclareLane
    | SetLane
    | ResetLane
    | DeclareEntry
    | EnableEntry
    | RemoveEntry
    | SetToken
    | RevokeToken
    | NoteUse
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DefineRequest:
    """Changes that hold together or not at all.

    Attributes:
        items: in this order.
        author: who; for code, the program's name.
        reason: why.
        revision: refuse unless the definitions' revision is this; None for any.
    """

    items: tuple[Item, ...]
    author: str
    reason: str = ""
    revision: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FireRequest:
    """Fires of one entry, laid ahead.

    Attributes:
        entry: its name.
        revision: the entry's, as read; another is refused.
        moments: strictly increasing; those not later than the last fired are refused.
        ahead_until: all fires up to here are laid; may be later than the last moment.
    """

    entry: str
    revision: int
    moments: tuple[int, ...]
    ahead_until: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FireReply:
    """The moments that were laid now; none if the revision is not current."""

    fired: tuple[int, ...]
    current: bool
