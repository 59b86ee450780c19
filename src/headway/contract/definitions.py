"""Definitions: gates, lanes, timetable entries, closings and tokens, by code or by an operator."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

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
    """A secret that proves possession of a token.

    Attributes:
        digest: SHA-256 of the secret, in hex; the secret itself is not stored.
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
        secrets: secrets, newest first; an older one is accepted until it expires.
        tenants: the only tenants it may access; None for all.
        lanes: the only lanes it may access, by name or by a pattern such as `send_*`; None for all.
        closes: gates that its runs may close, by resolved name or by a pattern such as `rate:*`, in
            addition to those that its roles allow.
        expires_at: when it expires; None for never.
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
OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclareGate:
    """Code declares a gate; an operator's values take precedence until they are reset."""

    spec: GateSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class SetGate:
    """An operator changes the limits of a gate, of one keyed instance, or of an implicit gate.

    Attributes:
        name: declared name or template, resolved name of a template, member of a pool
            (`pool/member`), or implicit gate (`all`, `lane:…`, `tenant:…`, `kind:…`).
        capacity: permits of a Slots, a member, or an implicit gate.
        limit: limit of a Rate.
        per_ms: window of a Rate.
        members: all members of a Pool, in place of the current ones.
    """

    name: str
    capacity: int | None = None
    limit: int | None = None
    per_ms: int | None = None
    members: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetGate:
    """Removes an operator's values of a gate; the declaration by code applies again."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CloseGate:
    """Closes any gate, indefinitely or until a time; a keyed template itself cannot be closed."""

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
    """Code declares a lane's settings; an operator's take precedence until they are reset."""

    spec: LaneSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class SetLane:
    """An operator replaces a lane's settings."""

    spec: LaneSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetLane:
    """Removes an operator's settings of a lane."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EntrySpec:
    """A timetable entry.

    Attributes:
        name: name of the entry.
        schedule: when it fires.
        job: job to enqueue; its id, due time and entry are filled in for each fire, and its
            `expires_at` counts from the time of the fire.
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
    """Code declares an entry; a change starts a new revision and cancels its scheduled fires."""

    spec: EntrySpec


@dataclass(frozen=True, kw_only=True, slots=True)
class EnableEntry:
    """An operator enables or disables an entry; disabling cancels its scheduled fires."""

    name: str
    enabled: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveEntry:
    """Removes an entry, except for the time of its last fire; cancels its scheduled fires."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SetToken:
    """Creates a token, or replaces the one with this id, which keeps its creation and use times."""

    spec: TokenSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class RevokeToken:
    """Removes a token; it can no longer be used."""

    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NoteUse:
    """Records when tokens were used; this is no change of definitions, and not in the trail.

    Attributes:
        used: token ids and times of use; unknown ids and earlier times are ignored.
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
    """Changes that are applied together, in order, or not at all.

    Attributes:
        author: author of the changes; for code, the program's name.
        revision: refuse the request unless this is the current revision; None for any.
    """

    items: tuple[Item, ...]
    author: str
    reason: str = ""
    revision: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FireRequest:
    """Fires of one entry to create in advance.

    Attributes:
        revision: revision of the entry when it was read; refused if it is no longer current.
        moments: times of the fires, strictly increasing; those not after the last fire are skipped.
        ahead_until: time up to which these are all fires; may be later than the last moment.
    """

    entry: str
    revision: int
    moments: tuple[int, ...]
    ahead_until: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FireReply:
    """The times of the fires that were created; none if the revision is not current."""

    fired: tuple[int, ...]
    current: bool
